# %%
import numpy as np
import pandas as pd
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score, train_test_split
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

rng = np.random.default_rng(3)
df = pd.DataFrame({"age": rng.integers(18, 80, 300), "fare": rng.gamma(2, 10, 300), "deck": rng.choice(list("ABC"), 300)})
df["survived"] = ((df.age < 40) ^ (df.deck == "A")).astype(int)
X_train, X_test, y_train, y_test = train_test_split(df.drop(columns="survived"), df.survived, random_state=0)
# %% run
pre = ColumnTransformer([("num", StandardScaler(), ["age", "fare"]), ("cat", OneHotEncoder(), ["deck"])])
pipe = Pipeline([("pre", pre), ("clf", LogisticRegression())])
grid = GridSearchCV(pipe, {"clf__C": [0.1, 1, 10]}, cv=3).fit(X_train, y_train)
boost = GradientBoostingClassifier(n_estimators=20, random_state=0)
boost_scores = cross_val_score(boost, pre.fit_transform(X_train), y_train, cv=3)
grid.best_score_
# %%
print(grid.best_params_, grid.score(X_test, y_test), boost_scores)
# %%
pd.DataFrame(grid.cv_results_)[["param_clf__C", "mean_test_score", "rank_test_score"]]
# %%
boost.fit(pre.transform(X_train), y_train).score(pre.transform(X_test), y_test)
# %%
best = grid.best_estimator_
list(best.named_steps), best[:-1].get_feature_names_out().tolist(), best["clf"].coef_.round(6)
