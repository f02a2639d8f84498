"""Python's standard library, with what Python and NumPy load at their start compiled: /in.zip -> /out.zip."""

import importlib._bootstrap_external as files
import sys
import zipfile

for name in ["ctypes", "dataclasses", "datetime", "hashlib", "json", "pickle", "platform", "secrets"]:  # NumPy's
    __import__(name)
loaded = {name.replace(".", "/") + end for name in sys.modules for end in (".py", "/__init__.py")}
given, out = zipfile.ZipFile("/in.zip"), zipfile.ZipFile("/out.zip", "w")
with given, out:
    for name in given.namelist():
        content = given.read(name)
        if name in loaded:
            code = compile(content, f"/lib/python312.zip/{name}", "exec", dont_inherit=True)
            name, content = name + "c", files._code_to_hash_pyc(code, bytes(8), False)
        out.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED, compresslevel=9)
