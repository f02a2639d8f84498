// Runs pytest in Pyodide under node:  node under_node.js NUMPY_WHEEL SITE_PACKAGES [pytest's arguments]
// SITE_PACKAGES: a folder with pytest, hypothesis and graphviz, which are pure Python: those of any CPython will do.
// A test that asks for a process or a thread, which a page has not, is skipped, and says so.
import { readFileSync, readdirSync, statSync } from "node:fs"
import { dirname, resolve } from "node:path"
import { fileURLToPath } from "node:url"
import { loadPyodide } from "pyodide"

const [wheel, site, ...args] = process.argv.slice(2)
const wanted =
  /^(pytest|_pytest|py\.py|pluggy|iniconfig|packaging|hypothesis|_hypothesis_\w+\.py|sortedcontainers|pygments|attrs?|graphviz)$/

try {
  const python = await loadPyodide()
  const mount = (folder, place) => {
    python.FS.mkdirTree(place)
    python.FS.mount(python.FS.filesystems.NODEFS, { root: resolve(folder) }, place)
  }
  mount(resolve(dirname(fileURLToPath(import.meta.url)), ".."), "/repo")
  python.FS.mkdirTree("/site")
  for (const name of readdirSync(site).filter(name => wanted.test(name))) {
    const path = resolve(site, name)
    if (statSync(path).isDirectory()) mount(path, `/site/${name}`)
    else python.FS.writeFile(`/site/${name}`, new Uint8Array(readFileSync(path)))
  }
  python.unpackArchive(new Uint8Array(readFileSync(wheel)), "wheel", { extractDir: "/site" })
  python.globals.set("arguments", python.toPy(args))
  process.exitCode = python.runPython(`
    import os, sys
    sys.path[:0] = ["/repo", "/site"]
    os.chdir("/repo")
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    sys.dont_write_bytecode = True
    import pytest

    class InAPage:
        @pytest.hookimpl(wrapper=True)
        def pytest_runtest_call(self):
            try:
                return (yield)
            except (OSError, RuntimeError) as error:
                if "does not support processes" in str(error) or "start new thread" in str(error):
                    pytest.skip(f"not in a page: {error}")
                raise

    options = ["-q", "-rs", "-p", "no:cacheprovider", "-o", "addopts=", "--capture=sys"]
    int(pytest.main([*options, *arguments], plugins=[InAPage()]))
  `)
} catch (error) {
  console.error(String(error.message ?? error).slice(-3000))
  process.exitCode = 1
}
