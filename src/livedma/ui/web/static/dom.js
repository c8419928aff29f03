// SPDX-License-Identifier: BSD-2-Clause
// Elements without markup in strings: what a server says is always text.

const SVG = "http://www.w3.org/2000/svg";

/** Makes an element. props: `text`, `on` (listeners), `data`; others are attributes; null: none. */
export function make(tag, props = {}, ...children) {
  return dress(document.createElement(tag), props, children);
}

/** Makes an SVG element in the same way. */
export function svg(tag, props = {}, ...children) {
  return dress(document.createElementNS(SVG, tag), props, children);
}

function dress(node, { text, on = {}, data = {}, ...attributes }, children) {
  for (const [name, value] of Object.entries(attributes)) put(node, name, value);
  for (const [name, listener] of Object.entries(on)) node.addEventListener(name, listener);
  Object.assign(node.dataset, data);
  if (text !== undefined) node.textContent = text;
  node.append(...children);
  return node;
}

/** Sets an attribute, only if that changes it. */
export function put(node, name, value) {
  if (value === null || value === undefined || value === false) node.removeAttribute(name);
  else if (node.getAttribute(name) !== String(value))
    node.setAttribute(name, value === true ? "" : value);
}

/** Sets its text, only if that changes it: selections and screen readers are not disturbed. */
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Makes one of the icons of icons.svg. */
export function icon(name) {
  return svg(
    "svg",
    { class: "icon", "aria-hidden": "true" },
    svg("use", { href: `static/icons.svg#${name}` }),
  );
}

export function setIcon(node, name) {
  put(node.firstChild, "href", `static/icons.svg#${name}`);
}

/** Orders children of `parent` by `keys`: `build(key)` makes those that are missing. */
export function keyed(parent, kept, keys, build) {
  const wanted = new Set(keys);
  for (const [key, one] of kept) {
    if (!wanted.has(key)) {
      one.node.remove();
      kept.delete(key);
    }
  }
  let place = parent.firstChild;
  for (const key of keys) {
    let one = kept.get(key);
    if (!one) {
      one = build(key);
      kept.set(key, one);
    }
    if (one.node === place) place = place.nextSibling;
    else parent.insertBefore(one.node, place);
  }
}
