// The one address outside this site: Pyodide, and NumPy for it, of one version.
export const RUNTIME = "https://cdn.jsdelivr.net/pyodide/v0.27.7/full/"
