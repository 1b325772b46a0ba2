package setup

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/batch/pbs"
	"github.com/grange-project/grange/internal/lazyregexp"
)

// need are the events of the hook, and what is missing without each.
var need = []struct {
	event string
	level batch.Level
	why   string
}{
	{"execjob_launch", batch.Broken, "nothing puts jobs into VMs: they run on the host itself"},
	{"execjob_begin", batch.Broken, "a mom that can run no hook, as with a full disk, starts the job on the host " +
		"itself"},
	{"exechost_startup", batch.Warning, "a host says that grange is there a minute late"},
	{"exechost_periodic", batch.Broken, "no host says that grange is there, and jobs wait for ever"},
	{"execjob_epilogue", batch.Warning, "a job whose VM can not be started fails instead of going to another host"},
	{"execjob_end", batch.Warning, "records of jobs that have ended stay in /run/grange/pbs"},
}

// checkServer looks at the server, its queues and its scheduler.
func (s *Site) checkServer(add func(string, batch.Finding)) {
	const server = "the server"
	if s.silent != nil {
		add("server", batch.Finding{Level: batch.Advice, Found: s.silent.Error(), Where: server,
			Why: "hooks and queues are not to be seen", Do: "run it as root, where the server runs"})
		return
	}
	h, ok := find(s.hooks, "hook", HookName)
	if !ok {
		add("hook", batch.Finding{Level: batch.Broken, Found: "no hook " + HookName, Where: server,
			Why: "every job runs on the host itself", Do: reinstall})
		return
	}
	set := func(key, value string) string {
		return fmt.Sprintf("qmgr -c 'set hook %s %s = %s'", HookName, key, value)
	}
	if !h.yes("enabled") {
		add("hook", batch.Finding{Level: batch.Broken, Found: "enabled = " + h.has["enabled"], Where: server,
			Why: "every job runs on the host itself", Do: set("enabled", "true")})
	} else {
		add("hook", good("enabled", server))
	}
	add("hook-events", checkEvents(h, set))
	add("hook-fail-action", func() batch.Finding {
		v := h.has["fail_action"]
		if !slices.Contains(strings.Split(v, ","), "offline_vnodes") {
			return batch.Finding{Level: batch.Warning, Found: "fail_action = " + v, Where: server,
				Why: "a host whose hook fails goes on being sent jobs, which it rejects one by one",
				Do:  set("fail_action", "offline_vnodes")}
		}
		return good("fail_action = "+v, server)
	}())
	add("hook-alarm", func() batch.Finding {
		const least = 10
		if n, err := strconv.Atoi(h.has["alarm"]); err != nil || n < least {
			return batch.Finding{Level: batch.Warning, Found: "alarm = " + h.has["alarm"], Where: server,
				Why: "on a busy host Python alone takes seconds to start, and a hook that is late rejects its job",
				Do:  set("alarm", "30")}
		}
		return good("alarm = "+h.has["alarm"], server)
	}())
	add("cgroup-hook", s.checkCgroupHook(h, set))
	text, err := s.qmgr("export hook " + HookName + " application/x-python default")
	if err != nil {
		text = ""
	}
	add("hook-program", checkHookText(text, server))
	if text, err = s.qmgr("export hook " + HookName + " application/x-config default"); err != nil {
		text = ""
	}
	c, f := checkHookConfig(text, server)
	add("hook-config", f)
	add("resource", func() batch.Finding {
		out, err := s.qmgr("list resource grange")
		r, ok := find(parseObjects(out), "resource", "grange")
		if err != nil || !ok || r.has["type"] != "boolean" || !strings.Contains(r.has["flag"], "h") {
			return batch.Finding{Level: batch.Broken, Found: "no resource grange that is a host's boolean",
				Where: server, Why: "hosts can not say that grange is there, and jobs go to those where it is not",
				Do: reinstall}
		}
		return good("boolean, flag h", server)
	}())
	s.checkQueues(c.Queues, add)
	add("sched-resources", s.checkSched())
	add("hosts", s.checkHosts())
}

func checkEvents(h object, set func(key, value string) string) batch.Finding {
	has := strings.Split(strings.ReplaceAll(h.has["event"], `"`, ""), ",")
	var missing, all, why []string
	level := batch.Good
	for _, n := range need {
		all = append(all, n.event)
		if slices.Contains(has, n.event) {
			continue
		}
		missing, why = append(missing, n.event), append(why, n.why)
		if level != batch.Broken {
			level = n.level
		}
	}
	if level == batch.Good {
		return good("all that it needs", "the server")
	}
	return batch.Finding{Level: level, Found: "no " + strings.Join(missing, ", "), Where: "the server",
		Why: strings.Join(why, "; "), Do: set("event", `"`+strings.Join(all, ",")+`"`)}
}

// checkCgroupHook: PBS's own hook makes the job's control groups, in which QEMU belongs. Ours has to come behind it.
func (s *Site) checkCgroupHook(ours object, set func(key, value string) string) batch.Finding {
	h, ok := find(s.hooks, "hook", "pbs_cgroups")
	if !ok || !h.yes("enabled") {
		return batch.Finding{Level: batch.Warning, Found: "pbs_cgroups is not enabled", Where: "the server",
			Why: "no limit of the job's holds its VM, and PBS accounts the wrapper instead of the VM",
			Do:  "qmgr -c 'set hook pbs_cgroups enabled = true', after a look at its configuration"}
	}
	theirs, _ := strconv.Atoi(h.has["order"])
	mine, err := strconv.Atoi(ours.has["order"])
	if err != nil || mine <= theirs {
		return batch.Finding{Level: batch.Broken,
			Found: fmt.Sprintf("order = %s, and that of pbs_cgroups is %d", ours.has["order"], theirs),
			Where: "the server", Why: "the job's control groups are not there yet when the hook writes down what the " +
				"job is", Do: set("order", strconv.Itoa(theirs+10))}
	}
	return good(fmt.Sprintf("pbs_cgroups comes first (%d, %d)", theirs, mine), "the server")
}

// checkQueues: jobs of these queues must not go where no hook is.
func (s *Site) checkQueues(queues []string, add func(string, batch.Finding)) {
	const key = "default_chunk.grange"
	const why = "jobs go to hosts that have no hook, which run them on the host itself"
	server, _ := find(s.all, "server", "")
	if len(queues) == 0 {
		if !server.yes(key) {
			add("queues", batch.Finding{Level: batch.Broken, Found: "all queues, and " + key + " is not set",
				Where: "the server", Why: why, Do: "qmgr -c 'set server " + key + " = true'"})
			return
		}
		add("queues", good("all", "the server"))
	}
	for _, name := range queues {
		q, ok := find(s.queues, "queue", name)
		switch {
		case !ok:
			add("queue-"+name, batch.Finding{Level: batch.Warning, Found: "no such queue", Where: "the server",
				Why: "the hook's configuration names it", Do: "make it, or " + reinstall})
		case q.has["route_destinations"] != "" || strings.EqualFold(q.has["queue_type"], "Route"):
			add("queue-"+name, batch.Finding{Level: batch.Broken, Found: "a routing queue", Where: "the server",
				Why: "a job runs in the queue it is routed to, which is not the hook's",
				Do:  "name the execution queues: grange pbs install --queue"})
		case !q.yes(key) && !server.yes(key):
			add("queue-"+name, batch.Finding{Level: batch.Broken, Found: key + " is not set", Where: "the server",
				Why: why, Do: "qmgr -c 'set queue " + name + " " + key + " = true'"})
		default:
			add("queue-"+name, good(key+" = True", "the server"))
		}
	}
}

var schedResources = lazyregexp.New(`(?m)^\s*resources\s*:\s*"?([^"\n]*)"?`)

// checkSched looks at the scheduler's configuration, where it is on this host.
func (s *Site) checkSched() batch.Finding {
	text, where, err := s.read("sched_priv/sched_config")
	if err != nil {
		return batch.Finding{Level: batch.Advice, Found: err.Error(), Where: where,
			Why: "whether the scheduler looks at grange is not to be seen", Do: "run it where pbs_sched runs"}
	}
	if m := schedResources.FindStringSubmatch(text); m != nil {
		for word := range strings.SplitSeq(m[1], ",") {
			if strings.TrimSpace(word) == "grange" {
				return good("resources: has grange", where)
			}
		}
	}
	return batch.Finding{Level: batch.Warning, Found: "resources: has no grange", Where: where,
		Why: "a scheduler that passes it over sends jobs to hosts that have no hook",
		Do:  "add grange to resources:, and send pbs_sched a HUP"}
}

// checkHosts: at least one host has to have said that grange is there.
func (s *Site) checkHosts() batch.Finding {
	d := pbs.NewDriver(pbs.DriverOptions{Bin: path.Join(s.Exec, "bin")}, s.run)
	nodes, err := d.Nodes(context.WithoutCancel(s.ctx))
	if err != nil {
		return batch.Finding{Level: batch.Advice, Found: err.Error(), Where: "pbsnodes",
			Why: "which hosts have grange is not to be seen", Do: "pbsnodes -a -F json"}
	}
	var ready []string
	for _, n := range nodes {
		if slices.Contains(n.Features, "grange") {
			ready = append(ready, n.Name)
		}
	}
	if len(ready) == 0 {
		return batch.Finding{Level: batch.Broken, Found: fmt.Sprintf("none of %d hosts has resources_available.grange",
			len(nodes)), Where: "pbsnodes", Why: "every job of the queues waits",
			Do: "wait a minute after the installation; then look into mom_logs for grange, and run grange pbs check " +
				"on a host"}
	}
	return good(fmt.Sprintf("%d of %d have grange", len(ready), len(nodes)), "pbsnodes")
}
