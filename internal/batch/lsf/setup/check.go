package setup

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/farm"
)

const reinstall = "grange lsf install, and put its lines where docs/guide/lsf.md says"

func good(found, where string) batch.Finding {
	return batch.Finding{Level: batch.Good, Found: found, Where: where}
}

// esubQueues are those that esub.grange is for.
func (s *Site) esubQueues() []string {
	words := strings.Fields(s.esub)
	if i := slices.Index(words, "--queues"); i >= 0 && i+1 < len(words) {
		return strings.Split(words[i+1], ",")
	}
	return nil
}

// isOurs reports whether a queue's jobs start by grange.
func isOurs(starter string) bool {
	return strings.Contains(starter, " exec --batch "+string(farm.LSF)+" ")
}

// Check looks at everything.
func Check(s *Site) []batch.Finding {
	var all []batch.Finding
	add := func(id string, f batch.Finding) {
		f.ID = id
		all = append(all, f)
	}
	ours := map[string]bool{}
	for _, name := range s.esubQueues() {
		ours[name] = true
	}
	wrapper := ""
	var started, others []string
	for _, q := range s.queues {
		name, starter := unquoted(q.has["QUEUE_NAME"]), q.has["JOB_STARTER"]
		if !strings.EqualFold(q.name, "Queue") {
			continue
		}
		if !isOurs(starter) && !ours[name] {
			others = append(others, name)
			continue
		}
		started = append(started, name)
		s.checkQueue(name, q, add)
		s.checkCheckpoints(name, q, add)
		if words := strings.Fields(strings.TrimPrefix(starter, "exec ")); isOurs(starter) && len(words) > 0 {
			wrapper = words[0]
		}
	}
	if len(started) == 0 {
		add("queues", batch.Finding{Level: batch.Broken, Found: "no queue starts its jobs by grange",
			Where: s.queuePath, Why: "every job runs on the host itself", Do: reinstall})
	}
	if wrapper != "" {
		add("wrapper", batch.CheckWrapper(s.Root, wrapper))
	}
	s.checkEsub(started, add)
	s.checkAround(others, add)
	s.checkConf(add)
	s.checkElim(add)
	return all
}

// checkQueue looks at one queue of lsb.queues.
func (s *Site) checkQueue(name string, q section, add func(string, batch.Finding)) {
	starter := q.has["JOB_STARTER"]
	f := batch.Finding{Level: batch.Broken, Found: "JOB_STARTER = " + starter, Where: s.queuePath, Do: reinstall}
	switch {
	case starter == "":
		f.Found, f.Why = "no JOB_STARTER", "esub.grange names the queue, and its jobs run on the host itself"
	case !isOurs(starter):
		f.Why = "it is not grange's: jobs start as that program says"
	case !strings.HasSuffix(starter, " -- '%USRCMD'"):
		f.Why = "without the quotes around %USRCMD the shell on the host reads the user's command line, and runs " +
			"what stands behind a ; or a |"
	case !strings.HasPrefix(starter, "exec /"):
		f.Level, f.Why = batch.Warning, "a shell stays between LSF and the wrapper; and the program is to be named "+
			"by an absolute path"
	default:
		f = good("grange's", s.queuePath)
	}
	add("starter-"+name, f)
	most := q.has["MAX_JOB_REQUEUE"]
	if most == "" {
		most = s.params.has["MAX_JOB_REQUEUE"]
	}
	values := strings.FieldsFunc(q.has["REQUEUE_EXIT_VALUES"],
		func(r rune) bool { return strings.ContainsRune(" \t()", r) })
	add("requeue-"+name, func() batch.Finding {
		switch {
		case !slices.Contains(values, strconv.Itoa(batch.ExitNotStarted)):
			return batch.Finding{Level: batch.Warning, Found: "REQUEUE_EXIT_VALUES = " + q.has["REQUEUE_EXIT_VALUES"],
				Where: s.queuePath, Why: "a job whose VM can not be started on one host fails instead of going to " +
					"another", Do: fmt.Sprintf("REQUEUE_EXIT_VALUES = %d", batch.ExitNotStarted)}
		case most == "":
			return batch.Finding{Level: batch.Warning, Found: "MAX_JOB_REQUEUE is not set", Where: s.queuePath,
				Why: "a job whose VM starts nowhere goes around for ever", Do: "MAX_JOB_REQUEUE = 3"}
		}
		return good(fmt.Sprintf("%d, %s times", batch.ExitNotStarted, most), s.queuePath)
	}())
	if yes := q.yes("RERUNNABLE"); yes {
		add("rerunnable-"+name, batch.Finding{Level: batch.Advice, Found: "RERUNNABLE = yes", Where: s.queuePath,
			Why: "a job whose host is lost runs again from its start, as on the host; users may not expect it of all jobs",
			Do:  "RERUNNABLE = no; bsub -r asks for it"})
	}
}

// checkEsub looks at what every submission goes through.
func (s *Site) checkEsub(queues []string, add func(string, batch.Finding)) {
	where := path.Join(s.serverDir, "esub.grange")
	f := batch.CheckScript(s.Root, where,
		"grange lsf install; copy esub.grange there, on every host where people submit")
	if f.Level == batch.Good {
		var missing []string
		for _, q := range queues {
			if list := s.esubQueues(); list != nil && !slices.Contains(list, q) {
				missing = append(missing, q)
			}
		}
		switch {
		case !strings.Contains(s.esub, " lsf esub"):
			f = batch.Finding{Level: batch.Broken, Found: "not grange's", Where: where,
				Why: "a command line that is not made one word is read by the shell on the host", Do: reinstall}
		case !strings.Contains(s.esub, "LSB_SUB_ABORT_VALUE"):
			f = batch.Finding{Level: batch.Broken, Found: "it does not abort", Where: where,
				Why: "LSF goes on with a submission whose esub fails, and the shell on the host reads its command line",
				Do:  reinstall}
		case len(missing) > 0:
			f = batch.Finding{Level: batch.Broken, Found: "it leaves out the queues " + strings.Join(missing, ", "),
				Where: where, Why: "the shell on the host reads the command line of their jobs",
				Do: "--queues with all of them: grange lsf install"}
		}
	}
	add("esub", f)
	methods := strings.Fields(unquoted(s.conf.has["LSB_ESUB_METHOD"]))
	if !slices.ContainsFunc(methods, func(m string) bool { return m == "grange" || strings.HasPrefix(m, "grange(") }) {
		add("esub-method", s.confFinding("LSB_ESUB_METHOD", batch.Broken,
			"the esub is not mandatory: without bsub -a grange the shell on the host reads the command line",
			`LSB_ESUB_METHOD="grange"`))
	} else {
		add("esub-method", s.confFinding("LSB_ESUB_METHOD", batch.Good, "", ""))
		for _, method := range methods {
			s.checkForeignEsub(method, add)
		}
	}
	if !s.conf.yes("LSB_SUB_COMMANDNAME") {
		add("esub-command", s.confFinding("LSB_SUB_COMMANDNAME", batch.Broken,
			"the esub does not see the command line, and can not make it one word", "LSB_SUB_COMMANDNAME=Y"))
	} else {
		add("esub-command", s.confFinding("LSB_SUB_COMMANDNAME", batch.Good, "", ""))
	}
	add("esub-boundary", batch.Finding{Level: batch.Advice, Found: "quotes are made where people submit", Where: where,
		Why: "esub runs as the user, on the submission host: who submits past it (an own bsub, LSF's library) can " +
			"have the shell on the host run something as themself",
		Do: "nothing in LSF closes it: where no user's process may run on hosts, let people submit only where bsub " +
			"is the site's, and give hosts nothing that a user's own rights could reach"})
}

// checkForeignEsub looks at a mandatory esub of others: bsub fails for everybody where its file is missing.
func (s *Site) checkForeignEsub(method string, add func(string, batch.Finding)) {
	name, _, _ := strings.Cut(method, "(")
	if name == "grange" || name == "" {
		return
	}
	f := batch.CheckScript(s.Root, path.Join(s.serverDir, "esub."+name), "put esub."+name+" there, or leave "+name+
		" out of LSB_ESUB_METHOD")
	if f.Level != batch.Good {
		f.Why = "LSB_ESUB_METHOD in " + s.ConfPath + " makes it mandatory: every submission fails"
	}
	add("esub-"+name, f)
}

func (s *Site) confFinding(key string, level batch.Level, why, do string) batch.Finding {
	found := key + "=" + s.conf.has[key]
	if s.conf.has[key] == "" {
		found = key + " is not set"
	}
	return batch.Finding{Level: level, Found: found, Where: s.ConfPath, Why: why, Do: do}
}

// checkConf looks at lsf.conf and lsb.params.
func (s *Site) checkConf(add func(string, batch.Finding)) {
	if s.conf.yes("LSF_PROCESS_TRACKING") {
		add("process-tracking", s.confFinding("LSF_PROCESS_TRACKING", batch.Warning,
			"LSF signals every process of the job's freezer group: QEMU ends of the TERM that is to give the job time",
			"LSF_PROCESS_TRACKING=N"))
	} else {
		add("process-tracking", s.confFinding("LSF_PROCESS_TRACKING", batch.Good, "", ""))
	}
	if !s.conf.yes("LSF_LINUX_CGROUP_ACCT") {
		add("accounting", s.confFinding("LSF_LINUX_CGROUP_ACCT", batch.Warning,
			"LSF accounts the wrapper's memory and CPU time instead of the VM's", "LSF_LINUX_CGROUP_ACCT=Y"))
	} else {
		add("accounting", s.confFinding("LSF_LINUX_CGROUP_ACCT", batch.Good, "", ""))
	}
	const key = "LSB_RESOURCE_ENFORCE"
	what := strings.Fields(unquoted(s.conf.has[key]))
	if !slices.Contains(what, "memory") || !slices.Contains(what, "cpu") {
		add("enforce", s.confFinding(key, batch.Warning,
			"no control group says which CPUs and how much memory the job has: the VM gets those of its shape",
			key+`="memory cpu"`))
	} else {
		add("enforce", s.confFinding(key, batch.Good, "", ""))
	}
	const least = 5
	if v := s.params.has["JOB_TERMINATE_INTERVAL"]; v != "" {
		if n, err := strconv.Atoi(v); err != nil || n < least {
			add("terminate-interval", batch.Finding{Level: batch.Warning, Found: "JOB_TERMINATE_INTERVAL = " + v,
				Where: "lsb.params",
				Why: "a job has that many seconds between INT, TERM and KILL, in the VM as on the host; a slow VM needs " +
					"some of them for itself", Do: "JOB_TERMINATE_INTERVAL = 10"})
		}
	}
}

// checkElim looks at what tells LSF of a host's VMs.
func (s *Site) checkElim(add func(string, batch.Finding)) {
	where := path.Join(s.serverDir, "elim.grange")
	f := batch.CheckScript(s.Root, where, "grange lsf install; copy elim.grange there, on every host")
	if f.Level != batch.Good && f.Found == "missing" { // jobs run; they cannot ask for room and images
		f.Level, f.Why = batch.Warning, "jobs can not ask for a host that has room or their image"
	}
	add("elim", f)
	defines := func(sections []section, name string) bool {
		return slices.ContainsFunc(sections, func(x section) bool {
			return strings.EqualFold(x.name, name) &&
				slices.ContainsFunc(x.rows, func(r string) bool { return strings.Fields(r)[0] == "grange_slots" })
		})
	}
	switch {
	case !defines(s.shared, "Resource"):
		add("resource", batch.Finding{Level: batch.Warning, Found: "no grange_slots", Where: "lsf.shared",
			Why: "LSF discards what elim.grange reports", Do: reinstall})
	case !defines(s.cluster, "ResourceMap"):
		add("resource", batch.Finding{Level: batch.Warning, Found: "no grange_slots in the ResourceMap",
			Where: "lsf.cluster", Why: "LSF starts an elim only for resources that are mapped to hosts", Do: reinstall})
	default:
		add("resource", good("grange_slots", "lsf.shared"))
	}
}
