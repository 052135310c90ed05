/** The rules that imports of the front end keep. Run by `npm run check`. */
export default {
  forbidden: [
    {
      name: 'no-circular',
      comment: 'Move what both files need into a file of its own; a type counts as anything else.',
      severity: 'error',
      from: {},
      to: { circular: true }
    }
  ],
  options: {
    doNotFollow: { path: 'node_modules' },
    tsPreCompilationDeps: true // what is imported for its type alone counts too
  }
};
