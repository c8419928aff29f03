# SPDX-License-Identifier: BSD-2-Clause
"""What the peers print is read as they mean it; the outputs were recorded from real runs."""

from __future__ import annotations

import pytest
from bench.rdma import compare, ratio
from bench.rdma_peers import number_before, ucx_columns

UCX_BANDWIDTH = """\
iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr
 500,0.301,3143.106,3143.106,318.16,318.16,318,318
"""
UCX_LATENCY = """\
iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr
20000,6.619,7.471,7.471,8.17,8.17,133855,133855
"""
UCX_NO_DEVICE = """\
iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr
[1794728221.033675] [vm:3860 :0]     ucp_context.c:1014 UCX  WARN  network device 'rba' is not \
available, please use one or more of: 'lo'(tcp)
[1794728221.033711] [vm:3860 :0]    perftest_run.c:334  UCX  ERROR Failed to run test: \
No such device
"""


def test_ucx_prints_the_figures_under_their_names() -> None:
    found = ucx_columns(UCX_BANDWIDTH)
    assert (found["iterations"], found["overall_bw"], found["overall_mr"]) == (500, 318.16, 318)
    assert ucx_columns(UCX_LATENCY)["50.0_percentile_lat"] == 6.619


def test_a_row_of_ucx_with_another_number_of_columns_is_refused() -> None:
    with pytest.raises(ValueError, match="longer"):
        ucx_columns(UCX_LATENCY.replace(",8.17", ",8.17,1", 1))


@pytest.mark.parametrize("text", ["", UCX_NO_DEVICE])
def test_a_failed_run_of_ucx_has_no_figures(text: str) -> None:
    with pytest.raises(ValueError, match="no figures"):
        ucx_columns(text)


def test_libfabric_and_the_limit_print_a_number_before_its_unit() -> None:
    text = "5227796930 bytes/s 4986 messages/s\n"
    assert number_before("bytes/s", text) == 5227796930
    assert number_before("messages/s", text) == 4986
    assert number_before("ns one way", "3170 ns one way\n") == 3170
    with pytest.raises(ValueError, match="no ns one way"):
        number_before("ns one way", text)


def test_ratios_compare_turn_by_turn() -> None:
    """One turn in which everything was ten times slower changes nothing."""
    assert ratio([20, 2, 20], [10, 1, 10]) == 2


def test_the_bars() -> None:
    """Both edges: exactly what is asked for holds, a little less does not."""

    def held(bandwidth: float, rate: float, latency: float) -> list[bool]:
        figures = {
            "bandwidth": {"limit": [50.0], "libfabric": [20.0], "UCX": [10.0]},
            "rate": {"limit": [0.0], "libfabric": [10.0], "UCX": [20.0]},
            "latency": {"limit": [10.0], "libfabric": [30.0], "UCX": [16.0]},
        }
        for figure, ours in (("bandwidth", bandwidth), ("rate", rate), ("latency", latency)):
            figures[figure]["ours"] = [ours]
        return [line.holds for line in compare("lo", figures)]

    assert held(30, 30, 16) == [True] * 6
    assert held(29.9, 29.9, 16.1) == [False, False, True, False, False, False]
