/** Settings of the bundler that `jupyter-builder` merges into its own. */
module.exports = {
  // Modules that several lazily loaded parts share are a file of their own from this size on, and not in each of them.
  optimization: { splitChunks: { minSize: 4000 } }
};
