# grange's hook for OpenPBS: every job of the queues that its configuration names starts in a virtual machine.
#
# execjob_launch runs as root in the process that is about to become the job (its parent is that process), before the job's own user and
# program are there. It writes down which job that process is, for grange's agent: the kernel does not know. Then it puts
# the wrapper in front of the program. For a batch job the program is the login shell, which reads the path of the script from its standard
# input; the wrapper knows that.
#
# Whatever goes wrong here rejects the job: it must never start on the host by accident.
import json
import os
import sys
import pbs

RECORDS = "/run/grange/pbs"


def settings():
    if not pbs.hook_config_filename:
        raise ValueError("no configuration: import it with `import hook grange application/x-config default FILE`")
    with open(pbs.hook_config_filename) as f:
        c = json.load(f)
    if not isinstance(c.get("wrapper"), list) or not c["wrapper"] or not os.path.isabs(c["wrapper"][0]):
        raise ValueError("the configuration names no wrapper by an absolute path")
    return c


def start_of(pid):
    """When a process started, in clock ticks since boot: field 22 of stat. The name before it may hold anything."""
    with open("/proc/%d/stat" % pid) as f:
        return int(f.read().rpartition(")")[2].split()[19])


def text(value):
    return "" if value is None else str(value)


def seconds(value):
    """A pbs.duration, or 01:02:03."""
    try:
        return int(value)
    except ValueError:
        total = 0
        for part in str(value).split(":"):
            total = 60 * total + int(float(part))
        return total


def size(value):
    """Bytes of a pbs.size: 400mb, 2gb; words are of 8 bytes."""
    s = str(value).lower()
    unit = s.lstrip("0123456789")
    scale = {"": 1, "b": 1, "kb": 10, "mb": 20, "gb": 30, "tb": 40, "pb": 50}
    if unit in scale:
        return int(s[:len(s) - len(unit)]) << (scale[unit] if unit not in ("", "b") else 0)
    if unit.endswith("w") and unit[:-1] + "b" in scale:
        return 8 * size(s[:-1] + "b")
    raise ValueError("size %r" % s)


def here(job, name):
    """What the job was given of a resource on this host, by its exec_vnode; None where it says nothing."""
    total = None
    vnodes = set(text(getattr(pbs.event(), "vnode_list", None) and ",".join(pbs.event().vnode_list.keys())).split(","))
    for chunk in text(job.exec_vnode).replace("(", "").replace(")", "").split("+"):
        parts = chunk.split(":")
        if parts[0] not in vnodes and parts[0].split("[")[0] != pbs.get_local_nodename():
            continue
        for part in parts[1:]:
            key, _, value = part.partition("=")
            if key == name:
                total = (total or 0) + (size(value) if name == "mem" else int(value))
    return total


def for_vm(e, c):
    """Whether the job is of a queue whose jobs run in virtual machines. Of another queue, one that asks for an image would run on the host
    without a word: it is refused."""
    queue = text(e.job.queue and e.job.queue.name)
    queues = c.get("queues")
    if queues is None or queue in queues:
        return True
    image = e.job.Resource_List["grange_image"]
    if image is not None:
        raise ValueError("grange_image=%s: jobs of queue %s run on the host; use queue %s, or leave grange_image out"
                         % (image, queue, " or ".join(queues)))
    return False


def begin(e):
    """Before anything of the job is here. A mom that cannot run hooks at all, for a full disk, fails here; in execjob_launch some releases of
    PBS take a hook that could not be run for one that accepted."""
    c = settings()
    for_vm(e, c)
    wrapper = c["wrapper"][0]
    if not os.access(wrapper, os.X_OK):
        raise ValueError(wrapper + " is not here")


def record(e, pid):
    job = e.job
    r = {"job": job.id, "start": start_of(pid), "queue": text(job.queue and job.queue.name), "account": text(job.Account_Name or job.project),
         "cpus": here(job, "ncpus") or 0, "memory": here(job, "mem") or 0}
    limit = job.Resource_List["walltime"]
    if limit is not None:
        r["walltime"] = seconds(limit)
    os.makedirs(RECORDS, mode=0o755, exist_ok=True)
    path = os.path.join(RECORDS, str(pid))
    fd = os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o644)
    with os.fdopen(fd, "w") as f:
        os.fchmod(fd, 0o644)
        json.dump(r, f)
    os.rename(path + ".new", path)


def launch(e):
    c = settings()
    record(e, os.getppid())
    if not for_vm(e, c):
        return
    old = [a for a in e.argv]
    new = list(c["wrapper"])
    image = e.job.Resource_List["grange_image"]
    if image is not None:
        new += ["--image", str(image)]
    new += ["--", e.progname] + old[1:]
    e.progname = new[0]
    del e.argv[:]
    for a in new:
        e.argv.append(a)


def epilogue(e):
    """The wrapper ends with 199 when no VM was started: the job has not run, and may be tried again, here or elsewhere."""
    if e.job.Exit_status == 199 and int(e.job.run_count or 0) <= settings().get("requeues", 3):
        e.job.rerun()
        e.reject("grange: no VM was started; the job is queued again")


def end(e):
    """The processes have gone; so do their records."""
    for name in os.listdir(RECORDS) if os.path.isdir(RECORDS) else []:
        path = os.path.join(RECORDS, name)
        try:
            with open(path) as f:
                if json.load(f).get("job") == e.job.id:
                    os.unlink(path)
        except (OSError, ValueError):
            pass


def ready(e):
    """Tells the server that jobs may come here: without this hook a host has no grange, and gets none of them."""
    c = settings()
    if not os.access(c["wrapper"][0], os.X_OK):
        raise ValueError(c["wrapper"][0] + " is not here")
    e.vnode_list[pbs.get_local_nodename()].resources_available["grange"] = True


e = pbs.event()
try:
    if e.type == pbs.EXECJOB_LAUNCH:
        launch(e)
    elif e.type == pbs.EXECJOB_BEGIN:
        begin(e)
    elif e.type == pbs.EXECJOB_EPILOGUE:
        epilogue(e)
    elif e.type == pbs.EXECJOB_END:
        end(e)
    else:
        ready(e)
    e.accept()
except SystemExit:
    raise
except:
    e.reject("grange: %s: %s" % sys.exc_info()[:2])
