/** Settings of the bundler that `jupyter-builder` merges into its own. */
const { rspack } = require('@rspack/core');

module.exports = {
  // The name changes with the content; JupyterLab's server lets browsers keep what is asked for with a `v`.
  output: { chunkFilename: '[name].[contenthash:8].js?v=1' },
  optimization: {
    mangleExports: 'size',
    // Modules that several lazily loaded parts share are a file of their own from this size on, and not in each of them.
    splitChunks: { minSize: 400 },
    minimizer: [
      new rspack.SwcJsMinimizerRspackPlugin({
        // Private members begin with one underscore, and only their classes name them: each file may call them as it
        // likes. Shorter names are those that the bundler gives to exports. No function expression is called with `new`,
        // so that each may be an arrow or a method.
        minimizerOptions: {
          compress: { passes: 3, ecma: 2022, keep_fargs: false, unsafe_arrows: true, unsafe_methods: true },
          mangle: { props: { regex: '^_[a-z]\\w{2}' } }
        }
      })
    ]
  }
};
