# What pbs_python is to a mom: runs a hook with a module pbs that holds one event, and prints what the hook made of it. Only what the hook of this
# project uses, as the PBS Professional Hooks Guide describes it.
import json
import os
import sys
import types

given = json.load(sys.stdin)
pbs = types.ModuleType("pbs")
for name in ("EXECJOB_BEGIN", "EXECJOB_LAUNCH", "EXECJOB_EPILOGUE", "EXECJOB_END", "EXECHOST_STARTUP", "EXECHOST_PERIODIC"):
    setattr(pbs, name, name)
pbs.hook_config_filename = given.get("config")
pbs.get_local_nodename = lambda: given["node"]


class Done(SystemExit):
    pass


class Resources(dict):
    def __missing__(self, key):
        return None


class Thing:
    def __init__(self, **fields):
        self.__dict__.update(fields)


answer = {"accept": True, "message": "", "resources": {}, "rerun": False}


def finish(accept, message=""):
    answer.update(accept=accept, message=message)
    raise Done()


job = given.get("job") or {}
e = Thing(type=given["type"], progname=given.get("progname", ""), argv=list(given.get("argv", [])), env=dict(given.get("env", {})),
          accept=lambda: finish(True), reject=lambda m="", c=0: finish(False, m),
          vnode_list={given["node"]: Thing(resources_available=answer["resources"])})
e.job = Thing(id=job.get("id"), queue=Thing(name=job.get("queue")), Account_Name=job.get("account"), project=None, exec_vnode=job.get("exec_vnode"),
              Resource_List=Resources(job.get("resources", {})), Exit_status=job.get("exit_status"), run_count=job.get("run_count"),
              rerun=lambda: answer.update(rerun=True))
pbs.event = lambda: e
sys.modules["pbs"] = pbs
out = os.dup(1)
os.dup2(2, 1)
try:
    with open(given["hook"]) as f:
        exec(compile(f.read(), given["hook"], "exec"), {"__name__": "__main__"})
except Done:
    pass
except BaseException as x:
    answer.update(accept=False, message="hook encountered an exception, request rejected: %s" % x)
answer.update(progname=e.progname, argv=e.argv)
with os.fdopen(out, "w") as f:
    json.dump(answer, f)
