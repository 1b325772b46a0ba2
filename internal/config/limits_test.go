package config

import "testing"

func TestLimits(t *testing.T) {
	a, err := ParseAgent(nil, "x")
	if err != nil {
		t.Fatal(err)
	}
	for all, want := range map[uint64]uint64{1: 1, 2: 1, 4: 3, 64: 48, 0: 0} {
		if got := a.Limits.CPUs.Of(all); got != want {
			t.Errorf("%d of %d CPUs, not %d", got, all, want)
		}
	}
	if a.Limits.Memory.Percent != 75 || a.Limits.Disk.Percent != 50 {
		t.Errorf("%+v", a.Limits)
	}
	a, err = ParseAgent([]byte("[limits]\ncpus = \"3\"\nmemory = \"2G\"\ndisk = \"100%\"\n"), "x")
	if err != nil || a.Limits.CPUs.Of(64) != 3 || a.Limits.Memory.Of(1) != 2<<30 || a.Limits.Disk.Of(1<<62+77) != 1<<62+77 {
		t.Errorf("%+v, %v", a.Limits, err)
	}
	for _, text := range []string{`cpus = "0"`, `cpus = "0%"`, `cpus = "101%"`, `cpus = "2G"`, `memory = ""`, `disk = "x%"`, `disk = 3`, `gpus = "1"`} {
		if _, err := ParseAgent([]byte("[limits]\n"+text), "x"); err == nil {
			t.Errorf("%s: no error", text)
		}
	}
}
