"""Device time in programs that really run: events, streams and waits on the virtual clock."""

import json

import pytest


def test_elapsed_time_is_the_chips(run_code) -> None:
    """A product of 4096^3 in fp16 takes 0.45 ms on a 910B2, whatever this host needs for it."""
    milliseconds = run_code(
        """
        import torch, torch_npu
        a = torch.ones(2048, 2048, device="npu", dtype=torch.float16)
        start, end = (torch.npu.Event(enable_timing=True) for _ in range(2))
        a @ a
        torch.npu.synchronize()
        start.record(); a @ a; end.record()
        print(start.elapsed_time(end))
        """,
        TORCH_CANN_SIMULATE="1",
    )
    # 2 * 2048^3 FLOP at 353.9 TFLOPS and the depth's 82 % are 0.059 ms; waves and launches add to it.
    assert 0.059 < float(milliseconds) < 0.12


def test_a_larger_chip_is_faster(run_code) -> None:
    code = """
        import torch, torch_npu
        a = torch.ones(2048, 2048, device="npu", dtype=torch.float16)
        start, end = (torch.npu.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(4): a @ a
        end.record()
        print(start.elapsed_time(end))
        """
    b1 = float(run_code(code, TORCH_CANN_SIMULATE="1", TORCH_CANN_SOC="Ascend910B1"))
    b4 = float(run_code(code, TORCH_CANN_SIMULATE="1", TORCH_CANN_SOC="Ascend910B4"))
    assert b1 < b4


def test_results_do_not_change(run_code) -> None:
    code = """
        import torch, torch_npu
        torch.manual_seed(0)
        m = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.LayerNorm(16), torch.nn.GELU(), torch.nn.Linear(16, 4)).npu()
        o = torch.optim.AdamW(m.parameters(), foreach=True)
        for _ in range(3):
            loss = m(torch.ones(5, 8).npu()).pow(2).mean(); loss.backward(); o.step(); o.zero_grad()
        print(loss.item().hex())
        """
    assert run_code(code) == run_code(code, TORCH_CANN_SIMULATE="1")


def test_streams_overlap_and_waits_join_them(run_code) -> None:
    times = json.loads(
        run_code(
            """
            import json, torch, torch_npu
            a = torch.ones(1 << 22, device="npu")
            def measure(wait):
                side = torch.npu.Stream()
                start, end = (torch.npu.Event(enable_timing=True) for _ in range(2))
                torch.npu.synchronize()
                start.record()
                with torch.npu.stream(side):
                    for _ in range(20): a.add(1)
                if wait: torch.npu.current_stream().wait_stream(side)
                a.add(1)
                end.record()
                return start.elapsed_time(end)
            measure(True)
            print(json.dumps([measure(False), measure(True)]))
            """,
            TORCH_CANN_SIMULATE="1",
        )
    )
    alone, joined = times
    assert joined > 2 * alone


def test_every_tier_of_operators_reports(run_code) -> None:
    """Direct and boxed kernels give the same operators the same time."""
    code = """
        import torch, torch_npu
        from torch_cann import _C
        a = torch.ones(512, 512, device="npu")
        b = (a @ a).softmax(-1) + a.sum(0)
        torch.cumsum(b, 0); b.copy_(a); a.to(torch.float16)
        spent = _C._sim.spent()
        print(round(spent["cube"], 3), round(spent["vector"], 3))
        """
    direct = run_code(code, TORCH_CANN_SIMULATE="1")
    boxed = run_code(code, TORCH_CANN_SIMULATE="1", TORCH_CANN_DIRECT_OPS="0")
    assert direct == boxed
    assert all(float(part) > 0 for part in direct.split())


def test_off_it_keeps_the_hosts_time(run_code) -> None:
    milliseconds = run_code(
        """
        import time, torch, torch_npu
        start, end = (torch.npu.Event(enable_timing=True) for _ in range(2))
        start.record(); time.sleep(0.05); end.record()
        print(start.elapsed_time(end))
        """
    )
    assert float(milliseconds) == pytest.approx(50, rel=0.5)


def test_a_copy_waits_for_the_card_that_sends_and_is_waited_for(run_code) -> None:
    """Card 0 computes for A, sends, and card 1 computes for A too: 2A and the copy pass, not A."""
    alone, both = json.loads(
        run_code(
            """
            import json, torch, torch_npu
            a, b = (torch.ones(4096, 4096, device=f"npu:{i}", dtype=torch.float16) for i in range(2))
            def marks():
                events = [torch.npu.Event(enable_timing=True) for _ in range(2)]
                for card in range(2):
                    torch.npu.synchronize(card)
                    events[card].record(torch.npu.current_stream(card))
                return events
            def elapsed(*work):
                before = marks()
                for step in work: step()
                return before[1].elapsed_time(marks()[1])
            def products(x): return lambda: [x @ x for _ in range(4)]
            print(json.dumps([elapsed(products(b)), elapsed(products(a), lambda: b.copy_(a), products(b))]))
            """,
            TORCH_CANN_DRY_RUN="1",
            TORCH_CANN_SIMULATE="1",
        )
    )
    link = 4096 * 4096 * 2 / 30e9 * 1e3  # a server's link is slower than 30 GB/s
    assert both > 2 * alone + link
