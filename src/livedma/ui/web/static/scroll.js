// SPDX-License-Identifier: BSD-2-Clause
// Boxes that scroll show it: what is cut off at an edge fades there. style.css draws it.

import { put } from "./dom.js";

/** Marks the edges of a box beyond which there is more; returns a function that checks again. */
export function cue(box) {
  const look = () => {
    put(box, "data-above", box.scrollTop > 1);
    put(box, "data-below", box.scrollHeight - box.clientHeight - box.scrollTop > 1);
  };
  box.addEventListener("scroll", look, { passive: true });
  new ResizeObserver(look).observe(box);
  return look;
}
