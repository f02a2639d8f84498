// The one address outside this site: Pyodide, and NumPy for it, of one version; and how many bytes come from there, unpacked.
export const RUNTIME = "https://cdn.jsdelivr.net/pyodide/v0.27.7/full/"
export const BYTES = 15_600_000
