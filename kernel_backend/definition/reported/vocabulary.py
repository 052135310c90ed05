"""Words by which printed labels are understood: groups such as training and validation, metrics, and counters."""

from __future__ import annotations

import re

_TRAIN = (
    r"(?<![^\W\d_])(?:train(?:ing)?|обуч[^\W\d_]*|трен[^\W\d_]*|entrenamiento|entra[iî]nement|treino|addestramento)(?![^\W\d_])"
    "|训练|訓練|学習|훈련|학습"
)
_HELD = (
    r"(?<![^\W\d_])(?:val(?:id(?:ation|ación|ierung|azione|ação)?)?|test(?:ing)?|eval(?:uation)?|dev|валид[^\W\d_]*|пров[^\W\d_]*|"
    r"тест[^\W\d_]*|prueba)(?![^\W\d_])|验证|驗證|検証|검증|测试|測試|テスト|테스트"
)
GROUP = re.compile(f"{_TRAIN}|{_HELD}", re.IGNORECASE)
METRIC = re.compile(
    r"\b(?:loss(?:es)?|acc(?:uracy)?|f1|auc|auroc|bleu|rouge|perplexity|ppl|error|precision|recall|iou|dice|mse|mae|rmse|"
    r"r2|psnr|ssim|wer|cer|map|reward|return|score|fid|elbo|kl)\b",
    re.IGNORECASE,
)
UNGROUPED = frozenset(
    {"lr", "learning_rate", "grad_norm", "norm", "momentum", "weight_decay"}
)  # of the step as a whole
# fmt: off
COUNTERS = frozenset({
    "a", "and", "arch", "batch", "batches", "best_epoch", "candidate", "classes", "cuda", "cycle", "data", "device",
    "dim", "dt", "elapsed", "ep", "episode", "episodes", "epoch", "epochs", "eta", "fold", "folds", "generation", "gpu",
    "hour", "hours", "idx", "images", "index", "it", "iter", "iteration", "iterations", "iters", "layer", "layers",
    "line", "mem", "member", "memory", "min", "mins", "minute", "minutes", "ms", "or", "parameter", "parameters",
    "params", "patience", "phase", "port", "rank", "round", "rounds", "run", "runs", "s", "sample", "samples", "sec",
    "second", "seconds", "secs", "seed", "size", "speed", "stage", "step", "steps", "the", "throughput", "time",
    "times", "tokens", "took", "trial", "update", "updates", "version", "worker", "workers",
    # The same in other languages
    "эпоха", "эпохи", "шаг", "итерация", "время", "батч", "epoche", "schritt", "zeit", "époque", "étape", "temps",
    "itération", "época", "epoca", "paso", "tiempo", "passo", "tempo", "εποχή", "βήμα", "χρόνος", "轮次", "轮数",
    "周期", "迭代", "步数", "步骤", "批次", "时间", "时长", "輪次", "步驟", "時間", "回合", "エポック", "ステップ",
    "バッチ", "에포크", "스텝", "단계", "배치", "시간",
})
# fmt: on


_TRAINS, _HELDS = (re.compile(each, re.IGNORECASE) for each in (_TRAIN, _HELD))


def is_training(name: str) -> bool:
    """Return True if the name marks a value of training, such as `train_loss`."""
    return _TRAINS.search(name) is not None


def is_held_out(name: str) -> bool:
    """Return True if the name marks a value of data that are held out, such as `val_loss`."""
    return _HELDS.search(name) is not None
