package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/grange-project/grange/e2e/batch/gridlab"
	"github.com/grange-project/grange/e2e/batch/slurmlab"
)

// script prints who and where it is, on which kernel, and ends with a status of its own.
const script = `#!/bin/sh
echo "boot $(cat /proc/sys/kernel/random/boot_id)"
echo "user $(id -un)"
echo "args $1 $2"
echo "complaint" >&2
exit %d
`

const noImage = "APPS/VM/NONE"

func job(code int, runtime string) gridlab.Job {
	return gridlab.Job{Queue: "main", Runtime: runtime, Script: fmt.Sprintf(script, code), Args: []string{"a b", "c"}}
}

// jobs sends jobs with a proxy and with a token, and such as are refused.
func (f *figures) jobs(ctx context.Context, c *cluster) error {
	began := time.Now()
	o, err := c.grid.RunProxy(ctx, c.proxy, job(3, ""))
	f.Proxy = time.Since(began).Seconds()
	f.count("VOMS proxy", o, err, "3")

	token, err := c.grid.Token()
	if err != nil {
		return err
	}
	began = time.Now()
	o, err = c.grid.RunToken(ctx, token, job(4, ""))
	f.Token = time.Since(began).Seconds()
	f.count("token", o, err, "4")

	if _, err := c.grid.RunToken(ctx, token+"x", job(0, "")); err == nil {
		f.fails("a forged token was taken")
	} else {
		f.passes("a forged token is refused")
	}
	// Which image a runtime environment names comes as far as Slurm's own check: this one is refused before it is
	// queued.
	if o, err := c.grid.RunToken(ctx, token, job(0, noImage)); o.State == "FAILED" && o.Stdout == "" &&
		strings.Contains(c.grid.SubmitLog(o.ID), "none-such") {
		f.passes("the image of a runtime environment reaches sbatch, and an unknown one is refused there")
	} else {
		f.fails("an unknown image by a runtime environment: %+v, %v\n%s", o, err, c.grid.SubmitLog(o.ID))
	}
	return nil
}

// count judges one job.
func (f *figures) count(what string, o gridlab.Outcome, err error, code string) {
	f.Machine = f.Machine && inMachine(o)
	want := "user " + slurmlab.User + "\nargs a b c\n"
	if err == nil && o.Code == code && strings.HasSuffix(o.Stdout, want) && strings.Contains(o.Stderr, "complaint\n") &&
		inMachine(o) {
		f.passes("%s: exit status %s, output and errors are back, in a virtual machine", what, code)
		return
	}
	f.fails("%s: %+v, %v", what, o, err)
}

// inMachine reports whether the job saw another kernel than this one.
func inMachine(o gridlab.Outcome) bool {
	here, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	seen, ok := strings.CutPrefix(strings.SplitN(o.Stdout, "\n", 2)[0], "boot ")
	return err == nil && ok && seen != "" && seen != strings.TrimSpace(string(here))
}
