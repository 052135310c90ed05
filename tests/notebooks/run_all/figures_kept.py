# %%
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_iris
from sklearn.decomposition import PCA

%matplotlib inline
iris = load_iris()
# %% run
pca = PCA(n_components=2, random_state=0)
points = pca.fit_transform(iris.data)
fig, ax = plt.subplots(figsize=(4, 3))
for target, name in enumerate(iris.target_names):
    chosen = iris.target == target
    ax.scatter(points[chosen, 0], points[chosen, 1], s=8, label=name)
ax.legend()
plt.close(fig)
# %%
fig
# %%
ax.set_title("PCA of iris")
ax.get_title(), len(ax.collections), ax.figure is fig
# %%
print(pca.explained_variance_ratio_, np.abs(points).max(0))
# %%
pca.inverse_transform(points[:2])
