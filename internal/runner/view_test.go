package runner

import (
	"testing"

	"github.com/grange-project/grange/internal/farm"
)

// TestHostsOwn: an image has its own system; a job's directory is bound wherever its batch system keeps it.
func TestHostsOwn(t *testing.T) {
	for dir, want := range map[string]bool{
		"/": true, "/usr/bin": true, "/etc": true, "/tmp": true, "/var/lib": true, "/run/user/1": true, "/opt": true,
		"/usrlocal": false,
		"/home/ann": false, "/var/lib/condor/execute/dir_17": false, "/tmp/run7": false, "/data": false,
		"/opt/site/run": false, "/root": false,
	} {
		if got := hostsOwn(dir); got != want {
			t.Errorf("%s: %v", dir, got)
		}
	}
}

func TestImagesOwn(t *testing.T) {
	for path, want := range map[string]bool{"/usr/bin/env": true, "/opt/site/bin/x": true, "/tmp/x": false,
		"/var/spool/slurmd/job5/slurm_script": false, "/home/x": false, "/tmp/d/x": false} {
		if got := imagesOwn(path); got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
}

func TestJobPlaces(t *testing.T) {
	env := map[string]string{"_CONDOR_SCRATCH_DIR": "/var/lib/condor/execute/dir_1", "SGE_JOB_SPOOL_DIR": "/spool/7.1",
		"PBS_NODEFILE": "/var/spool/pbs/aux/7"}
	get := func(k string) string { return env[k] }
	for s, want := range map[farm.BatchSystem]string{farm.HTCondor: "/var/lib/condor/execute/dir_1",
		farm.GridEngine: "/spool/7.1", farm.PBS: "/var/spool/pbs/aux"} {
		got := jobPlaces(kindOf(s).Wrapper, get)
		if len(got) != 1 || got[0].Source != want || got[0].ReadOnly == (s == farm.HTCondor) {
			t.Errorf("%s: %+v", s, got)
		}
	}
	if got := jobPlaces(kindOf(farm.Slurm).Wrapper, get); got != nil {
		t.Errorf("slurm: %+v", got)
	}
	if got := jobPlaces(kindOf(farm.HTCondor).Wrapper, func(string) string { return "relative" }); got != nil {
		t.Errorf("a relative path: %+v", got)
	}
}
