package allotment

import "testing"

func TestWithinAndFrozen(t *testing.T) {
	const v2, v1 = "0::/system.slice/slurmstepd.scope/job_1/step_0/user/task_0\n", "3:freezer:/slurm/uid_1/job_1/step_0\n"
	at := map[string]string{v2: "system.slice/slurmstepd.scope/job_1/step_0/user/task_0",
		v1: "freezer/slurm/uid_1/job_1/step_0"}
	for name, c := range map[string]struct {
		group, state, file, text string
		want                     bool
	}{
		"runs, version 2":            {v2, "S", "cgroup.events", "populated 1\nfrozen 0\n", false},
		"frozen, version 2":          {v2, "S", "cgroup.events", "populated 1\nfrozen 1\n", true},
		"runs, version 1":            {v1, "R", "freezer.state", "THAWED\n", false},
		"frozen, version 1":          {v1, "D", "freezer.state", "FROZEN\n", true},
		"being frozen":               {v1, "R", "freezer.state", "FREEZING\n", true},
		"stopped by a signal":        {v2, "T", "cgroup.events", "populated 1\nfrozen 0\n", true},
		"traced":                     {v2, "t", "cgroup.events", "", true},
		"in no group that says more": {v2, "S", "other", "frozen 1\n", false},
	} {
		dir := cgroupRoot + "/" + at[c.group] + "/"
		files := parseTree(t, "-- "+dir+"cgroup.procs --\n-- "+dir+c.file+" --\n"+c.text).people(person{pid: 7,
			cgroup: c.group})
		files.MapFS["proc/7/stat"].Data = []byte("7 (a) b) " + c.state + " 1")
		if got := Frozen(files, 7); got != c.want {
			t.Errorf("%s: frozen is %v", name, got)
		}
		for dir, want := range map[string]bool{at[c.group]: true, at[c.group] + "/below": false, "memory/x": false,
			at[c.group][:len(at[c.group])-1]: false, at[c.group][:len(at[c.group])-7]: true} {
			if got, err := Within(files, 7, dir); err != nil || got != want {
				t.Errorf("%s: within %s is %v, %v", name, dir, got, err)
			}
		}
	}
	if _, err := Within(parseTree(t, ""), 7, "x"); err == nil {
		t.Error("a process that has gone is within something")
	}
}
