"""THE roll: the models that are converted with parity, served over V2, V1 and gRPC, and explained; by library.

Each library has an environment of its own, so the models themselves stand in several modules, which take their names
from here. `REFUSED` are models that their library answers with, and that no converter writes faithfully.
"""

from typing import Final

SERVED: Final = {
    "scikit-learn": (
        *(
            "logistic",
            "scaled-svc",
            "forest",
            "forest-gaps",
            "extra-trees-numbers",
            "boosting",
            "histogram-boosting",
            "ridge",
        ),
        *("histogram-regression", "tree", "neighbours", "bayes", "perceptron", "table", "words"),
        *("linear-svc", "search", "votes", "two-classes-svc", "two-classes-lines"),
    ),
    "XGBoost": (
        *("xgb-binary", "xgb-classes", "xgb-labels", "xgb-regression"),
        *("xgb-poisson", "xgb-base-score", "xgb-ranker"),
    ),
    "LightGBM": (
        *("lgbm-binary", "lgbm-classes", "lgbm-slope", "lgbm-forest"),
        *("lgbm-forest-classes", "lgbm-regression", "lgbm-categories"),
    ),
    "CatBoost": ("cat-binary", "cat-classes", "cat-regression"),
    "Keras": ("dense", "pictures", "two_inputs", "words", "signals", "residual", "scaled"),
    "PyTorch": ("perceptron", "pictures", "tower", "signals", "recurrent"),
    "Hugging Face": ("reviews", "stars"),
}
REFUSED: Final = {
    "scikit-learn": ("a function of one's own", "no converter", "splits between numbers of FP64"),
    "XGBoost": ("categories of xgboost", "another booster"),
    "LightGBM": ("timestamps", "zeros as missing values"),
    "CatBoost": ("categories of catboost",),
}
