# %%
import pandas as pd
from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import KFold

features, target = load_iris(return_X_y=True, as_frame=True)
# %% run
rows, oof = [], pd.Series(0.0, index=target.index)
for fold, (train, test) in enumerate(KFold(3, shuffle=True, random_state=0).split(features)):
    forest = RandomForestClassifier(10, random_state=fold).fit(features.iloc[train], target.iloc[train])
    oof.iloc[test] = forest.predict(features.iloc[test])
    rows.append({"fold": fold, "accuracy": forest.score(features.iloc[test], target.iloc[test])})
table = pd.DataFrame(rows)
# %%
table
# %%
(oof == target).mean(), forest.predict(features.iloc[:3])
# %%
table.accuracy.plot.bar(rot=0)
