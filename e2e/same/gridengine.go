package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/grange-project/grange/e2e/batch/conform"
	"github.com/grange-project/grange/e2e/batch/gridenginelab"
)

// gridEngine is a Grid Engine of our own, which starts the program by qsub.
type gridEngine struct{ lab *gridenginelab.Lab }

func openGridEngine(ctx context.Context, s *site) (system, error) {
	l, err := gridenginelab.Start(ctx, gridenginelab.Options{Binds: []string{s.top}, Wait: patience})
	if err != nil {
		return nil, err
	}
	const nice = "7" // of all jobs: users have no say in it
	for _, queue := range []string{gridenginelab.Queue, gridenginelab.HostQueue} {
		if _, err := l.Command(ctx, "qconf", "-mattr", "queue", "priority", nice, queue); err != nil {
			return nil, errors.Join(err, l.Close())
		}
	}
	return &gridEngine{l}, nil
}

func (*gridEngine) name() string { return "gridengine" }

func (g *gridEngine) Close() error { return g.lab.Close() }

// adapt: a job has the state that its shepherd gives it, and its limits are those that options name.
func (*gridEngine) adapt(in input) input {
	in = in.ofDaemon()
	// The job fails in a directory with a line end. Grid Engine takes dollars for variables of its own.
	in.dir = strings.ReplaceAll(oneLine(in.dir), "$", "s")
	in.limits = slices.DeleteFunc(in.limits, func(l limit) bool { return gridEngineLimits[l.resource] == "" })
	return in
}

// gridEngineLimits are the names of limits in Grid Engine. h_rss and h_vmem are the memory of a VM, whose soft limits
// are asked for alone.
var gridEngineLimits = map[int]string{0: "cpu", 1: "fsize", 2: "data", 3: "stack", 4: "core", 5: "rss", 9: "vmem"}

func (g *gridEngine) run(ctx context.Context, c *testCase, inVM bool) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	script, err := c.script()
	if err != nil {
		return "", err
	}
	queue := gridenginelab.HostQueue
	if inVM {
		queue = gridenginelab.Queue
	}
	args := []string{gridenginelab.Program("qsub"), "-terse", "-V", "-q", queue, "-wd", c.dir, "-o", c.path("out")}
	args = append(args, c.gridEngineOptions()...)
	caller := c.submitter()
	caller.limits = nil
	cmd := g.lab.UserCommand(ctx, caller.launchWords(append(append(args, script), c.args...))...)
	cmd.Env = append(cmd.Env, c.environment()...)
	var id, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &id, &errs
	if err := cmd.Run(); err != nil {
		return errs.String(), err
	}
	number := strings.TrimSpace(id.String())
	g.lab.Follow(number)
	result, err := g.lab.Wait(ctx, number)
	output, readErr := c.takeFiles()
	if err == nil && result.State != conform.Done {
		err = fmt.Errorf("the job is %v", result)
	}
	return output, errors.Join(err, readErr)
}

// gridEngineOptions are the options of qsub for the files and the limits of a case.
func (c *testCase) gridEngineOptions() (args []string) {
	if c.stdin == "file" {
		args = append(args, "-i", c.path("input"))
	}
	if c.files == files || c.files == pipes {
		args = append(args, "-e", c.path("err"))
	} else {
		args = append(args, "-j", "y")
	}
	for _, l := range c.limits {
		name := gridEngineLimits[l.resource]
		for _, one := range []struct {
			kind  string
			value uint64
		}{{"s_", l.soft}, {"h_", l.hard}} {
			if one.value != math.MaxUint64 && !(one.kind == "h_" && (name == "rss" || name == "vmem")) {
				args = append(args, "-l", fmt.Sprintf("%s%s=%d", one.kind, name, one.value))
			}
		}
	}
	return args
}
