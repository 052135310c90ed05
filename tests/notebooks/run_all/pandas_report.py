# %%
import pandas as pd
from sklearn.datasets import load_wine

wine = load_wine(as_frame=True)
df = wine.frame.assign(kind=wine.target_names[wine.target])
# %% run
df["ratio"] = df["alcohol"] / df["hue"]
summary = df.groupby("kind").agg(n=("ratio", "size"), ratio=("ratio", "mean"), alcohol=("alcohol", "median"))
wide = df.melt(id_vars="kind", value_vars=["ash", "hue"]).pivot_table(index="variable", columns="kind", values="value")
top = df.nlargest(5, "proline")[["kind", "proline"]]
by_kind = {kind: part.describe() for kind, part in df.groupby("kind")[["ash", "hue"]]}
dtypes = df.dtypes.astype(str).to_dict()
# %%
summary
# %%
wide.round(3)
# %%
top.style.format(precision=1).hide(axis="index").set_uuid("t").to_html()[:400]
# %%
by_kind["class_1"].loc["mean"], dtypes["ratio"], "ratio" in df
# %%
summary["ratio"].plot.barh()
