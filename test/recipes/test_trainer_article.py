"""The full script of the article that asks for these recipes, and pipelines in one process."""

import pytest
import torch
from cann.recipes.train import AdvancedTrainer, OptimizedDataLoader
from small import classifier, points
from test_trainer import same, trained, weights


def test_the_full_script() -> None:
    model = classifier(6)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    train_loader = OptimizedDataLoader(points(1024), batch_size=32, num_workers=0, pin_memory=True, prefetch_factor=4)
    val_loader = OptimizedDataLoader(points(64, seed=2), batch_size=32)

    trainer = AdvancedTrainer(
        model=model,
        optimizer=optimizer,
        train_loader=train_loader,
        val_loader=val_loader,
        amp_config={"enabled": True, "opt_level": "O2"},
        parallel_config={"strategy": "pipeline", "stages": 4},
        memory_config={"checkpointing": True, "activation_compression": True},
    )
    result = trainer.train(epochs=100, max_steps=30, log_interval=10)

    assert result.step == 30 and result.loss < 1.1 and result.val_loss < 1.1  # log(4) = 1.39 before
    assert {p.device.index for p in model.parameters()} == {0, 1, 2, 3}
    assert {p.dtype for p in model.parameters()} == {torch.float16, torch.float32}


def _without_dropout(**options):
    model = classifier(6)
    trainer = AdvancedTrainer(
        model,
        torch.optim.SGD(model.parameters(), lr=0.1),
        OptimizedDataLoader(points(64), 16, shuffle=True),
        console=False,
        **options,
    )
    return trainer, trainer.train(epochs=2, log_interval=1)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"clip_norm": 0.5, "memory_config": {"accumulation_steps": 2, "checkpointing": True}},
        {"amp_config": {"dtype": "bfloat16"}},
        {"amp_config": {"opt_level": "O2", "keep_fp32": ["7"]}},
    ],
    ids=["float32", "accumulated and clipped", "O1", "O2"],
)
def test_a_pipeline_trains_as_one_card_does(options) -> None:
    one, expected = _without_dropout(**options)
    pipeline = {"strategy": "pipeline", "stages": 3, "micro_batches": 4}
    ours, result = _without_dropout(parallel_config=pipeline, **options)
    # Micro-batches change the order of sums; in 16 bits, at which numbers they are rounded.
    tolerance = 1e-2 if "amp_config" in options else 1e-4
    assert result.loss == pytest.approx(expected.loss, rel=2 * tolerance)
    for name, value in weights(ours.model).items():
        torch.testing.assert_close(value.float(), weights(one.model)[name].float(), rtol=0, atol=tolerance, msg=name)


def test_a_pipeline_goes_on_to_the_bit_and_on_one_card(tmp_path) -> None:
    options = {"parallel_config": {"strategy": "pipeline", "stages": 2}, "amp_config": {"opt_level": "O2"}}
    whole, _ = trained(epochs=2, **options)
    trained(epochs=2, max_steps=5, checkpoint_dir=tmp_path, **options)
    one, _ = trained(epochs=2, max_steps=6, checkpoint_dir=tmp_path, amp_config=options["amp_config"])
    assert one.step == 6 and {p.device.index for p in one.model.parameters()} == {0}
    trainer, _ = trained(epochs=2, max_steps=6, checkpoint_dir=tmp_path, **options)
    trainer.load_checkpoint(5)  # not the one card's
    trainer.train(epochs=2)
    assert same(weights(trainer.model), weights(whole.model))


def test_what_does_not_go_with_a_pipeline() -> None:
    zero_bubble = {"strategy": "pipeline", "stages": 2, "schedule": "zero-bubble"}
    with pytest.raises(ValueError, match="checkpointing does not go with schedule 'zero-bubble'"):
        trained(parallel_config=zero_bubble, memory_config={"checkpointing": True})
    with pytest.raises(ValueError, match="schedule must be one of gpipe, 1F1B"):
        trained(parallel_config={"strategy": "pipeline", "stages": 2, "schedule": "1B1F"})
