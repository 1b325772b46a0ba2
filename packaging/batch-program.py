#!/usr/bin/python3
# An example of a program for grange's exec driver: a batch system in one file of JSON. Take its shape for your own system, and replace what it does by
# your system's commands. docs/guide/batch.md describes the protocol. Beside it, tests use the verbs below "for tests" to play users and administrators.
#
#   echo '{"protocol": 1, "verb": "nodes"}' | STATE=/var/lib/toy.json packaging/batch-program.py nodes
import datetime
import fcntl
import json
import os
import sys

PATH = os.environ.get("STATE", "/var/lib/grange-batch-example.json")


class Failed(Exception):
    def __init__(self, kind, message, hint=""):
        self.answer = {"kind": kind, "message": message, "hint": hint}


def now():
    return datetime.datetime.now(datetime.timezone.utc)


def stamp(t):
    return t.isoformat()


class Farm:
    def __init__(self, state):
        self.s = state
        for key, value in (("hosts", {}), ("jobs", []), ("ended", []), ("next", 1)):
            self.s.setdefault(key, value)

    def host(self, name):
        if name not in self.s["hosts"]:
            raise Failed("not found", "no host %s" % name)
        return self.s["hosts"][name]

    def free(self, name):
        return self.s["hosts"][name]["cpus"] - sum(j["cpus"] for j in self.s["jobs"] if j.get("where") == name)

    def schedule(self):
        for j in self.s["jobs"]:
            name = j.get("host")
            if j.get("where") or name not in self.s["hosts"]:
                continue
            if not self.s["hosts"][name].get("closed_by") and self.free(name) >= j["cpus"]:
                j["where"], j["started"] = name, stamp(now())

    def submit(self, job):
        job["id"], job["submitted"] = str(self.s["next"]), stamp(now())
        self.s["next"] += 1
        self.s["jobs"].append(job)
        self.schedule()
        return job

    def end(self, job, outcome, code=0):
        self.s["jobs"].remove(job)
        if job.get("where"):
            e = {k: job[k] for k in ("id", "user", "account", "queue", "cpus", "submitted", "started", "booking") if job.get(k)}
            e.update(hosts=[job["where"]], finished=stamp(now()), outcome=outcome, code=code)
            self.s["ended"].append(e)
        self.schedule()

    def view(self, job):
        v = {k: job[k] for k in ("id", "user", "account", "queue", "booking") if job.get(k)}
        if job.get("seconds") and job.get("started"):
            v["ends"] = stamp(datetime.datetime.fromisoformat(job["started"]) + datetime.timedelta(seconds=job["seconds"]))
        return v

    def booking(self, job):
        b = {k: job[k] for k in ("account", "host", "cpus", "memory", "queue", "seconds") if job.get(k)}
        b.update(name=job["booking"], job=job["id"], held=bool(job.get("where")))
        if job.get("where"):
            b["since"] = job["started"]
        else:
            b["why"] = "no room"
        return b

    def booked(self, name):
        return next((j for j in self.s["jobs"] if j.get("booking") == name), None)

    # The verbs of the protocol.

    def demand(self, r):
        return {"demand": [dict({k: j[k] for k in ("image", "shape", "cpus", "memory", "account", "queue") if j.get(k)}, jobs=1, oldest=j["submitted"])
                           for j in self.s["jobs"] if not j.get("where") and not j.get("booking")]}

    def nodes(self, r):
        out = []
        for name, h in self.s["hosts"].items():
            free = self.free(name)
            state = "closed" if h.get("closed_by") else "busy" if free < h["cpus"] else "idle"
            out.append(dict(h, name=name, state=state, free=0 if state == "closed" else free, queues=["main"]))
        return {"nodes": out}

    def ended(self, r):
        cursor = r.get("cursor") or "0"
        if not cursor.isdigit() or int(cursor) > len(self.s["ended"]):
            raise Failed("invalid", "no cursor of ours: %s" % cursor)
        jobs = self.s["ended"][int(cursor):int(cursor) + r["limit"]]
        return {"ended": jobs, "cursor": str(int(cursor) + len(jobs))}

    def close(self, r):
        h = self.host(r["host"])
        if h.get("closed_by", "grange") == "grange":
            h["closed_by"], h["reason"] = "grange", r["reason"]
        return {}

    def open(self, r):
        h = self.host(r["host"])
        if h.get("closed_by", "grange") != "grange":
            raise Failed("conflict", "host %s was closed by %s: %s" % (r["host"], h["closed_by"], h["reason"]))
        h.pop("closed_by", None)
        h.pop("reason", None)
        self.schedule()
        return {}

    def drain(self, r):
        self.close(r)
        return {"running": [self.view(j) for j in self.s["jobs"] if j.get("where") == r["host"]]}

    def book(self, r):
        b = r["booking"]
        job = self.booked(b["name"])
        if job is None:
            h = self.host(b["host"])
            if b.get("queue", "main") != "main" or b["cpus"] > h["cpus"]:
                raise Failed("invalid", "no such queue, or no host of that size")
            job = {k: b[k] for k in ("account", "host", "cpus", "memory", "seconds") if b.get(k)}
            job = self.submit(dict(job, queue="main", user="root", booking=b["name"]))
        return {"booked": self.booking(job)}

    def bookings(self, r):
        return {"bookings": [self.booking(j) for j in self.s["jobs"] if j.get("booking")]}

    def release(self, r):
        job = self.booked(r["name"])
        if job is not None:
            self.end(job, "cancelled")
        return {}

    def lookup(self, r):
        for j in self.s["jobs"]:
            if j["id"] == r["job"] and j.get("where"):
                return {"lookup": self.view(j)}
        raise Failed("not found", "no job %s runs" % r["job"])

    # For tests: users and administrators.

    def test_submit(self, r):
        return {"lookup": self.view(self.submit(r["submit"]))}

    def test_end(self, r):
        for j in [j for j in self.s["jobs"] if j["id"] == r["job"]]:
            self.end(j, r["outcome"], r.get("code", 0))
        return {}

    def test_set(self, r):
        h = self.s["hosts"].setdefault(r["host"], {"cpus": 4, "memory": 8 << 30})
        h.pop("closed_by", None)
        h.pop("reason", None)
        h.update(r.get("set") or {})
        self.schedule()
        return {}


VERBS = ("demand", "nodes", "ended", "close", "open", "drain", "book", "bookings", "release", "lookup", "test_submit", "test_end", "test_set")


def main():
    request = json.load(sys.stdin)
    try:
        if request.get("protocol") != 1 or request.get("verb") not in VERBS:
            raise Failed("invalid", "this program speaks protocol 1, and knows no verb %s" % request.get("verb"))
        with open(PATH, "a+") as f:
            fcntl.flock(f, fcntl.LOCK_EX)  # several requests may come at the same time
            f.seek(0)
            farm = Farm(json.loads(f.read() or "{}"))
            answer = getattr(farm, request["verb"])(request)
            f.seek(0)
            f.truncate()
            json.dump(farm.s, f)
    except Failed as e:
        answer = {"error": e.answer}
    json.dump(answer, sys.stdout)


main()
