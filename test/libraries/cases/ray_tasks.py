"""ray: finds the cards of this host by itself, and gives each task cards of its own."""

import ray
import torch


@ray.remote(num_cpus=0, resources={"NPU": 1})
def square_on_card() -> tuple[str, int, float]:
    import os

    import torch
    import torch_npu  # noqa: F401

    total = (torch.arange(4.0, device="npu") ** 2).sum().item()
    return os.environ["ASCEND_RT_VISIBLE_DEVICES"], torch.npu.device_count(), total


def main() -> None:
    cards = torch.npu.device_count()
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
    try:
        found = ray.cluster_resources()
        assert found["NPU"] == cards, (found, cards)
        assert any(name.startswith("accelerator_type:Ascend") for name in found), found
        results = ray.get([square_on_card.remote() for _ in range(2)])
        for visible, count, total in results:
            assert visible.isdigit() and count == 1 and total == 14.0, results
        print(found, results)
    finally:
        ray.shutdown()


if __name__ == "__main__":
    main()
