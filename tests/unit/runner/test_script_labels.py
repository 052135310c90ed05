"""Test parsing named numbers in printed lines of many styles."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest

from kernel_backend.definition.reported import labels
from kernel_backend.definition.reported.labels import LONGEST_LINE, labelled


@pytest.mark.parametrize(
    ("line", "found"),
    [
        # Epochs and steps
        ("Epoch 3: loss=0.12 acc: 97.3%", {"loss": 0.12, "acc": 97.3}),
        ("Epoch [3/10], Step [100/600], Loss: 0.1234", {"loss": 0.1234}),
        ("Train Epoch: 1 [640/60000 (1%)]\tLoss: 2.305123", {"loss": 2.305123}),
        ("[1,  2000] loss: 2.184", {"loss": 2.184}),
        ("loss: 0.345678  [   64/60000]", {"loss": 0.345678}),
        ("epoch:3 loss:0.4000 acc:0.90", {"loss": 0.4, "acc": 0.9}),
        ("Epoch 0 train_loss 0.5 val_loss 0.4", {"train_loss": 0.5, "val_loss": 0.4}),
        ("Epoch 3 | Loss 0.1234 | Acc 98.20%", {"loss": 0.1234, "acc": 98.2}),
        ("iter 100: train loss 2.1, val loss 2.2", {"train_loss": 2.1, "val_loss": 2.2}),
        ("Fold 1 Epoch 2 RMSE 0.34", {"rmse": 0.34}),
        ("Loss after epoch 3: 0.25", {"loss": 0.25}),
        ("Epoch 12, train/loss: 0.5, val/acc: 0.6", {"train/loss": 0.5, "val/acc": 0.6}),
        ("Epoch: 1/10.. Training Loss: 0.5.. Test Loss: 0.4", {"training_loss": 0.5, "test_loss": 0.4}),
        ("Epoch 1 - avg_train_loss: 0.5  avg_val_loss: 0.4  time: 12s", {"avg_train_loss": 0.5, "avg_val_loss": 0.4}),
        (
            "Epoch 5/10 - loss: 0.3 - accuracy: 0.9 - val_loss: 0.4 - val_accuracy: 0.85",
            {"loss": 0.3, "accuracy": 0.9, "val_loss": 0.4, "val_accuracy": 0.85},
        ),
        # Headings
        ("Validation: loss=0.3, acc=0.9", {"validation_loss": 0.3, "validation_acc": 0.9}),
        (
            "Train: loss 0.31 acc 0.90 | Val: loss 0.42 acc 0.87",
            {"train_loss": 0.31, "train_acc": 0.9, "val_loss": 0.42, "val_acc": 0.87},
        ),
        (
            "Test set: Average loss: 0.0543, Accuracy: 9823/10000 (98%)",
            {"test_average_loss": 0.0543, "test_accuracy": 0.9823},
        ),
        ("Test Error: \n Accuracy: 65.5%, Avg loss: 0.789 \n", {"test_accuracy": 65.5, "test_avg_loss": 0.789}),
        ("====> Test set loss: 43.5", {"test_set_loss": 43.5}),
        ("===== Epoch 3 loss: 0.5 =====", {"loss": 0.5}),
        ("\t Val. Loss: 0.475 |  Val. Acc: 82.29%", {"val_loss": 0.475, "val_acc": 82.29}),
        ("Avg. reward: 3.5, Max. reward: 9", {"avg_reward": 3.5, "max_reward": 9.0}),
        # Sentences
        ("Done with the test. Accuracy: 0.9", {"accuracy": 0.9}),
        ("Accuracy of the network on the 10000 test images: 54 %", {"test_accuracy": 54.0}),
        ("Training accuracy is 0.91", {"training_accuracy": 0.91}),
        ("mean reward over 100 episodes: 195.2", {"mean_reward": 195.2}),
        ("best val_acc 0.95 at epoch 3", {"best_val_acc": 0.95}),
        ("2024-01-01 12:00:01 INFO loss: 0.2", {"loss": 0.2}),
        # Values as Python writes them
        ("{'loss': 0.5, 'acc': 0.9, 'epoch': 1}", {"loss": 0.5, "acc": 0.9}),
        ("loss tensor(0.5000, grad_fn=<NllLossBackward0>)", {"loss": 0.5}),
        ("Epoch 0 loss 0.7 1-NN 0.51 5-fold acc 0.8", {"loss": 0.7, "1-nn": 0.51, "5-fold_acc": 0.8}),
        ("Epoch 3-loss 0.5", {"loss": 0.5}),
        ("Train: 3 [120/500 (24%)]  Loss: 2.3  Acc@1: 11.1", {"loss": 2.3, "acc@1": 11.1}),
        ("member 3 Epoch: 20 loss: 0.4", {"loss": 0.4}),
        ("ep 5 loss 0.3 recall 0.6", {"loss": 0.3, "recall": 0.6}),
        ("Train: 0.95 Test: 0.93", {"train": 0.95, "test": 0.93}),
        ("{'acc': np.float64(0.9), 'f1': np.float32(0.8)}", {"acc": 0.9, "f1": 0.8}),
        ("auc np.float64(0.77)", {"auc": 0.77}),
        ("learning curve: [np.float64(0.867), np.float64(0.9)]", {}),
        ("scores: [np.float64(0.9)]", {"scores": 0.9}),
        ("loss.item()=0.25", {"loss": 0.25}),
        ("lr: [0.001]", {"lr": 0.001}),
        ("t = 3 loss = 1,234.5", {"loss": 1234.5}),
        ("loss -0.5 kl 1e-4", {"loss": -0.5, "kl": 1e-4}),
        ("acc = .75", {"acc": 0.75}),
        # Names as the user writes them, in any script
        ("Эпоха 3: потеря 0.5, точность: 0.9", {"потеря": 0.5, "точность": 0.9}),
        ("第3轮 损失：0.5，准确率：90％", {"损失": 0.5, "准确率": 90.0}),
        ("损失0.5", {"损失": 0.5}),
        ("エポック 3 損失: 0.5 精度: 0.9", {"損失": 0.5, "精度": 0.9}),
        ("에포크 3 손실: 0.5", {"손실": 0.5}),
        ("Εποχή 3 | απώλεια 0.5 | ακρίβεια 0.9", {"απώλεια": 0.5, "ακρίβεια": 0.9}),
        ("Époque 2 - précision : 0,9 - perte : 0.5", {"perte": 0.5}),
        ("pre\u0301cision: 0.9", {"pr\u00e9cision": 0.9}),
        ("हानि: 0.5", {"हानि": 0.5}),
        (
            "训练 损失 0.5 准确率 0.9 | 验证 损失 0.6 准确率 0.8",
            {"训练_损失": 0.5, "训练_准确率": 0.9, "验证_损失": 0.6, "验证_准确率": 0.8},
        ),
        ("обучение: потеря 0.5 | валидация: потеря 0.6", {"обучение_потеря": 0.5, "валидация_потеря": 0.6}),
        # Two groups in one line
        (
            "train loss 0.5 acc 0.9 | val loss 0.6 acc 0.8",
            {"train_loss": 0.5, "train_acc": 0.9, "val_loss": 0.6, "val_acc": 0.8},
        ),
        ("train loss 0.5 acc 0.9 | val loss 0.6", {"train_loss": 0.5, "train_acc": 0.9, "val_loss": 0.6}),
        (
            "train_loss=0.5, acc=0.9, val_loss=0.6, acc=0.8",
            {"train_loss": 0.5, "train_acc": 0.9, "val_loss": 0.6, "val_acc": 0.8},
        ),
        ("loss 0.5 acc 0.9 | val loss 0.6 acc 0.8", {"loss": 0.5, "acc": 0.9, "val_loss": 0.6, "val_acc": 0.8}),
        ("train loss 0.5 lr 0.1 val loss 0.6", {"train_loss": 0.5, "lr": 0.1, "val_loss": 0.6}),
        ("A: loss 0.5 acc 0.9 | B: loss 0.6 acc 0.8", {}),
        ("[D loss: 0.5, acc: 0.9] [G loss: 0.6, acc: 0.8]", {"d_loss": 0.5, "g_loss": 0.6}),
        # Numbers within a name
        ("mAP@0.5: 0.7 mAP@0.5:0.95: 0.4", {"map@0.5": 0.7, "map@0.5_0.95": 0.4}),
        ("mAP50 0.7 mAP50-95 0.4", {"map50": 0.7, "map50-95": 0.4}),
        # Several of a kind
        ("F1: 0.8 / precision: 0.7 / recall: 0.9", {"f1": 0.8, "precision": 0.7, "recall": 0.9}),
        ("ROUGE-1: 40.2 ROUGE-L: 35.1", {"rouge-1": 40.2, "rouge-l": 35.1}),
        ("Episode 10\tLast reward: 35.00\tAverage reward: 11.4", {"last_reward": 35.0, "average_reward": 11.4}),
        (
            "[0/5][0/1583]\tLoss_D: 1.4\tLoss_G: 5\tD(x): 0.56\tD(G(z)): 0.6 / 0.01",
            {"loss_d": 1.4, "loss_g": 5.0, "d_x": 0.56, "d_g_z": 0.6},
        ),
        (
            "Epoch: [0][ 10/5005]\tTime  0.2 ( 0.5)\tData 0.1\tLoss 6.9e+00 (7.0e+00)\tAcc@1   0.39 (  0.2)",
            {"loss": 6.9, "acc@1": 0.39},
        ),
        ("| epoch   1 |   200/ 2983 batches | lr 20.00 | ms/batch 12.0 | loss  7.65", {"lr": 20.0, "loss": 7.65}),
        ("step 10 | loss 3.2 | norm 0.3 | dt 100ms | tok/sec 1234", {"loss": 3.2, "norm": 0.3}),
    ],
)
def test_numbers_under_a_name_are_found(line: str, found: dict[str, float]) -> None:
    assert labelled(line) == found


@pytest.mark.parametrize(
    "line",
    [
        "0.123",
        "3 0.5",
        "Epoch 1/5",
        "Epoch 1 took 12.3s",
        "number of parameters: 10.65M",
        "GPU mem 3.2GB",
        "early stopping at epoch 7",
        "val loss improved from 0.5 to 0.4",
        "Saved checkpoint to model_3.pt",
        "Using device cuda:0",
        "weights [0.1 0.2]",
        "30/30 [==============================] - 1s 2ms/step - loss: 0.3",
        "12/30 [===========>..................] - ETA: 0s - loss: 0.4",
        "100%|##########| 10/10 [00:00<00:00, 12.3it/s, loss=0.3]",
        "torch.Size([64, 10])",
        "",
    ],
)
def test_counters_times_and_numbers_without_a_name_are_left_out(line: str) -> None:
    assert labelled(line) == {}


def test_a_number_that_is_none_is_kept() -> None:
    assert math.isnan(labelled("loss: nan")["loss"])


def test_of_a_name_that_comes_twice_the_last_counts() -> None:
    assert labelled("loss: 0.3\nloss: 0.2\n") == {"loss": 0.2}


class Looking:
    """Pattern that counts the characters that it is given."""

    def __init__(self, pattern: re.Pattern[str], looked: list[int]) -> None:
        self._pattern, self._looked = pattern, looked

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any) -> Any:
            self._looked.append(len(args[-1]))
            return getattr(self._pattern, name)(*args)

        return call


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the lengths of the texts that patterns are given."""
    found: list[int] = []
    for name, each in vars(labels).items():
        if isinstance(each, re.Pattern):
            monkeypatch.setattr(labels, name, Looking(each, found))
    return found


def test_a_line_without_end_is_not_looked_at(looked: list[int]) -> None:
    assert labelled("x" * 16_000 + " 5\n" + "y 1 " * 4000 + "\nloss: 0.5\n") == {"loss": 0.5}
    assert sum(looked) < 50 * LONGEST_LINE


@pytest.mark.parametrize("unit", ["x", "a 5 ", "word ", "=", "-", "[", "loss - ", "tensor(", "1,", "0:00", "损失", " "])
def test_of_a_long_line_a_limited_part_is_looked_at(unit: str, looked: list[int]) -> None:
    line = (unit * LONGEST_LINE)[: LONGEST_LINE - 2] + " 5"
    labelled(line)
    labels._label.cache_clear()
    assert max(looked) <= LONGEST_LINE
    assert sum(looked) < 40 * LONGEST_LINE


def test_a_label_that_is_known_costs_one_look_at_the_line(looked: list[int]) -> None:
    labels._label.cache_clear()
    labelled("Epoch 1: loss=0.12 acc: 97.3%")
    first = len(looked)
    labelled("Epoch 2: loss=0.11 acc: 97.5%")
    assert len(looked) - first < first / 2
