package main

import (
	"context"
	"fmt"
	"syscall"
	"time"
)

// fault is one thing that goes wrong, and the alarm that it is to raise.
type fault struct {
	alarm, what string
	put         func(context.Context, *site) (mend func() error, err error)
}

var all = []fault{
	{"GrangeDown", "the agent hangs", agentHangs},
	{"GrangeHypervisorAway", "libvirtd refuses connections", libvirtdAway},
	{"GrangeHypervisorSlow", "libvirtd takes a second and a half for an answer", libvirtdSlow},
	{"GrangeLinkLost", "the network between host and server is cut", linkCut},
	{"GrangeTakesNoVMs", "the disk of the agent is filled", diskShort},
	{"GrangeVMsUnplaced", "a VM asks for more than any host has", unplaced},
	{"GrangeImageFailures", "a job names an image that is not there", noImage},
	{"GrangeDisksPromised", "something fills the disk that was promised to VMs", diskFilled},
}

func agentHangs(_ context.Context, s *site) (func() error, error) {
	s.host.SignalAgent(syscall.SIGSTOP)
	return func() error { s.host.SignalAgent(syscall.SIGCONT); return nil }, nil
}

func libvirtdAway(_ context.Context, s *site) (func() error, error) {
	s.host.Proxy.Refuse()
	return s.host.Proxy.Flow, nil
}

func libvirtdSlow(_ context.Context, s *site) (func() error, error) {
	s.host.Proxy.Delay(1500 * time.Millisecond)
	return s.host.Proxy.Flow, nil
}

func linkCut(_ context.Context, s *site) (func() error, error) {
	s.link.cut()
	return func() error { s.link.mend(); return nil }, nil
}

// diskShort leaves less than the least that an agent starts VMs with.
func diskShort(_ context.Context, s *site) (func() error, error) { return s.fill(600 << 20) }

func unplaced(ctx context.Context, s *site) (func() error, error) {
	_, err := s.server.Grange(ctx, "vm", "create", "--project", project, "--name", "huge", "--image", "micro", "--shape",
		"huge")
	return func() error {
		_, err := s.server.Grange(ctx, "vm", "delete", project+"/huge", "--wait")
		return err
	}, err
}

func noImage(ctx context.Context, s *site) (func() error, error) {
	out, err := s.host.Exec(ctx, "--image", "nowhere", "--", "true").CombinedOutput()
	if err == nil {
		return nil, fmt.Errorf("a job ran in an image that is not there: %s", out)
	}
	return nil, nil
}

// diskFilled promises a VM scratch, and takes the space from it.
func diskFilled(ctx context.Context, s *site) (mend func() error, err error) {
	ctx, end := context.WithCancel(ctx)
	job := s.host.Exec(ctx, "--scratch", "400M", "--", "sh", "-c", "echo up; sleep 600")
	out, err := job.StdoutPipe()
	if err == nil {
		err = job.Start()
	}
	if err != nil {
		end()
		return nil, err
	}
	free := func() error { return nil }
	mend = func() error {
		end()
		job.Wait() // it was killed
		return free()
	}
	if _, err := out.Read(make([]byte, 1)); err != nil {
		return mend, fmt.Errorf("the job does not come up: %w", err)
	}
	free, err = s.fill(100 << 20)
	return mend, err
}
