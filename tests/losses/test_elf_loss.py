"""ELFLoss as a training loop of one's own calls it: logits of all exits and labels in, loss and exits out."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from elfnet.errors import RequestError
from elfnet.losses import BalancedSoftmaxLoss, CrossEntropyLoss, ELFLoss, LDAMLoss, class_weights

COUNTS = [40, 20, 10, 5]


def _batch(exits: int = 3, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(2)
    logits_EBC = 3 * torch.randn(exits, 9, 4, generator=generator, dtype=dtype)
    return logits_EBC.requires_grad_(), torch.randint(4, (9,), generator=generator)


def test_is_eq_1_and_2_by_a_literal_loop() -> None:
    logits_EBC, target_B = _batch(dtype=torch.float64)
    weights_C = class_weights(COUNTS, "effective", dtype=torch.float64)
    loss, exit_B = ELFLoss(CrossEntropyLoss(), threshold=0.6)(logits_EBC, target_B, weights_C=weights_C)
    total = weight = 0.0
    for b, y in enumerate(target_B.tolist()):
        weight += float(weights_C[y])
        for e in range(3):
            z = [math.exp(value) for value in logits_EBC[e, b].tolist()]
            p = [value / sum(z) for value in z]
            total += float(weights_C[y]) * -math.log(p[y])
            if e == 2 or (max(p) == p[y] and p[y] > 0.6):
                assert int(exit_B[b]) == e
                break
    assert sorted(set(exit_B.tolist())) == [0, 1, 2]
    assert float(loss.detach()) == pytest.approx(total / weight, abs=1e-12)


def test_a_list_of_exits_is_the_same_as_a_tensor() -> None:
    logits_EBC, target_B = _batch()
    elf = ELFLoss(BalancedSoftmaxLoss(COUNTS))
    (first, exits), (second, same) = elf(logits_EBC, target_B), elf(list(logits_EBC), target_B)
    assert torch.equal(first, second)
    assert torch.equal(exits, same)


def test_thresholds_may_be_multiples_of_one_over_c() -> None:
    assert ELFLoss(LDAMLoss(COUNTS), threshold="2/C").rule.threshold == 0.5  # type: ignore[union-attr]
    with pytest.raises(RequestError, match="does not know the number of classes; give it as a number"):
        ELFLoss(CrossEntropyLoss(), threshold="2/C")


def test_without_a_threshold_everybody_visits_all_exits() -> None:
    logits_EBC, target_B = _batch()
    loss, exit_B = ELFLoss(CrossEntropyLoss(), threshold=None)(logits_EBC, target_B)
    assert exit_B.tolist() == [2] * 9
    expected = sum(torch.nn.functional.cross_entropy(logits_BC, target_B) for logits_BC in logits_EBC)
    torch.testing.assert_close(loss, expected)


def test_gradcheck_runs_with_fixed_visits() -> None:
    logits_EBC, target_B = _batch(dtype=torch.float64)
    elf, weights_C = ELFLoss(LDAMLoss(COUNTS), threshold=0.4), class_weights(COUNTS, dtype=torch.float64)
    visited_EB = elf.visited(logits_EBC, target_B)
    assert not visited_EB.all()
    assert torch.autograd.gradcheck(
        lambda logits: elf(logits, target_B, visited_EB=visited_EB, weights_C=weights_C)[0], logits_EBC
    )


def test_parts_with_the_divisor_of_the_whole_give_its_loss() -> None:
    """So N processes, or N parts of a batch, give the gradient of one process with the whole batch."""
    logits_EBC, target_B = _batch()
    elf, weights_C = ELFLoss(CrossEntropyLoss(), threshold=0.5), class_weights(COUNTS)
    whole, _ = elf(logits_EBC, target_B, weights_C=weights_C)
    divisor = weights_C[target_B].sum()
    parts = [
        elf(logits_EBC[:, rows], target_B[rows], weights_C=weights_C, divisor=divisor)[0]
        for rows in (slice(0, 2), slice(2, 9))
    ]
    torch.testing.assert_close(sum(parts), whole)


@pytest.mark.slow
def test_compiles_and_runs_under_autocast() -> None:
    logits_EBC, target_B = _batch()
    elf = ELFLoss(BalancedSoftmaxLoss(COUNTS), threshold=0.5, exits=3)
    compiled = torch.compile(elf, backend="aot_eager", fullgraph=True)
    (expected, exits), (found, same) = elf(logits_EBC, target_B), compiled(logits_EBC, target_B)
    torch.testing.assert_close(found, expected)
    assert torch.equal(exits, same)
    torch.autograd.backward(found)
    assert logits_EBC.grad is not None
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss, _ = elf(logits_EBC.bfloat16(), target_B)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, expected, rtol=2e-2, atol=2e-2)


def test_wrong_logits_are_refused_in_one_line() -> None:
    elf, target_B = ELFLoss(LDAMLoss(COUNTS), exits=3), torch.zeros(5, dtype=torch.long)
    with pytest.raises(
        RequestError, match=r"the logits have 2 exits, and the loss was built for 3; give the logits of"
    ):
        elf(torch.zeros(2, 5, 4), target_B)
    with pytest.raises(RequestError, match="the logits have 4 exits, and the loss was built for 3"):
        elf([torch.zeros(5, 4)] * 4, target_B)
    with pytest.raises(RequestError, match=r"the logits have shape \(5, 4\); give those of all exits"):
        elf(torch.zeros(5, 4), target_B)
    with pytest.raises(RequestError, match="the logits have 3 classes, and LDAMLoss got counts of 4"):
        elf(torch.zeros(3, 5, 3), target_B)
    with pytest.raises(RequestError, match=r"have shapes \[\(5, 4\), \(5, 4\), \(5, 3\)\]; give one tensor per exit"):
        elf([torch.zeros(5, 4), torch.zeros(5, 4), torch.zeros(5, 3)], target_B)
    with pytest.raises(RequestError, match=r"the logits of the exits have shapes \[\]"):
        ELFLoss(CrossEntropyLoss())([], target_B)
    with pytest.raises(RequestError, match=r"the logits are of 6 examples, and the labels have shape \(5,\)"):
        elf(torch.zeros(3, 6, 4), target_B)


def test_a_base_loss_of_torch_is_refused() -> None:
    with pytest.raises(RequestError, match=r"base is torch\..*CrossEntropyLoss; give a loss of elfnet\.losses"):
        ELFLoss(torch.nn.CrossEntropyLoss())  # type: ignore[arg-type]


@pytest.mark.parametrize("take", [LDAMLoss, BalancedSoftmaxLoss, class_weights])
def test_no_counts_are_refused(take: Callable[[list[int]], object]) -> None:
    with pytest.raises(RequestError, match="class_counts is empty; give the number of training examples"):
        take([])


def test_class_weights_of_another_number_of_classes_are_refused() -> None:
    with pytest.raises(RequestError, match="2 class weights for 4 classes; give one per class"):
        ELFLoss(CrossEntropyLoss())(torch.zeros(3, 5, 4), torch.zeros(5, dtype=torch.long), weights_C=torch.ones(2))
