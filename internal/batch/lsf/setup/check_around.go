package setup

import (
	"strings"

	"github.com/grange-project/grange/internal/batch"
)

// checkAround looks for ways around the job starter: what runs programs of users on hosts by other means than a job of
// our queues.
func (s *Site) checkAround(others []string, add func(string, batch.Finding)) {
	if !s.conf.yes("LSF_DISABLE_LSRUN") {
		add("lsrun", s.confFinding("LSF_DISABLE_LSRUN", batch.Broken,
			"lsrun and lsgrun run any program on any host, as whoever calls them, outside of every job",
			"LSF_DISABLE_LSRUN=Y"))
	} else {
		add("lsrun", s.confFinding("LSF_DISABLE_LSRUN", batch.Good, "", ""))
	}
	s.checkApplications(add)
	if len(others) > 0 {
		add("other-queues", batch.Finding{Level: batch.Advice,
			Found: "jobs of " + strings.Join(others, ", ") + " run on the host itself", Where: s.queuePath,
			Why: "bsub -q, bswitch and bmod -q bring a job there, for everybody whom these queues let in; no esub is " +
				"asked by bswitch", Do: "where nobody may run on the hosts of the VMs: USERS = and HOSTS = in these " +
				"queues, so that they have other users or other hosts"})
	}
	add("login", batch.CheckLogin(s.Root))
}

// checkApplications: a profile that a user names by bsub -app has a starter, or a container, that goes before the
// queue's.
func (s *Site) checkApplications(add func(string, batch.Finding)) {
	for _, a := range s.apps {
		name := unquoted(a.has["NAME"])
		if !strings.EqualFold(a.name, "Application") || name == "" {
			continue
		}
		f := batch.Finding{Level: batch.Broken, Where: s.appPath,
			Do: "leave it out of the profile, or give the profile the queue's JOB_STARTER"}
		switch starter := a.has["JOB_STARTER"]; {
		case starter != "" && !isOurs(starter):
			f.Found, f.Why = "JOB_STARTER = "+starter, "it goes before the queue's: bsub -app "+name+" runs on the "+
				"host itself"
		case a.has["CONTAINER"] != "":
			f.Found, f.Why = "CONTAINER = "+a.has["CONTAINER"], "LSF starts the container on the host itself: bsub "+
				"-app "+name
		case a.has["CHKPNT_DIR"] != "":
			f.Found, f.Why, f.Do = "CHKPNT_DIR = "+a.has["CHKPNT_DIR"], checkpoints, "leave it out"
		default:
			f = good("nothing goes before the queue's starter", s.appPath)
		}
		add("application-"+name, f)
	}
}

const checkpoints = "LSF checkpoints jobs by programs that it runs as the user on the host, and the user's " +
	"environment says which"

// checkCheckpoints: of a queue.
func (s *Site) checkCheckpoints(name string, q section, add func(string, batch.Finding)) {
	switch {
	case q.has["CHKPNT"] != "":
		add("checkpoint-"+name, batch.Finding{Level: batch.Broken, Found: "CHKPNT = " + q.has["CHKPNT"],
			Where: s.queuePath, Why: checkpoints, Do: "leave CHKPNT out"})
	case q.has["CONTAINER"] != "":
		add("container-"+name, batch.Finding{Level: batch.Broken, Found: "CONTAINER = " + q.has["CONTAINER"],
			Where: s.queuePath, Why: "LSF starts the container on the host itself", Do: "leave CONTAINER out"})
	}
}
