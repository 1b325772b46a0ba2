package agent

import (
	"fmt"
	"time"

	"github.com/grange-project/grange/internal/hyper"
)

// watchDaemon logs how the hypervisor's daemon does, each time that changes.
func (a *watch) watchDaemon() {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var last hyper.Daemon
	for {
		a.watching.Turned(time.Now())
		now := a.hyper.Daemon()
		a.logDaemon(last, now)
		last = now
		select {
		case <-tick.C:
		case <-a.ctx.Done():
			return
		}
	}
}

func (a *watch) logDaemon(last, now hyper.Daemon) {
	switch {
	case now.Away != "" && last.Away == "":
		a.log.Warn("the hypervisor does not answer", "error", now.Away)
	case now.Away == "" && last.Away != "":
		a.log.Info("the hypervisor answers again", "after", time.Since(last.Since).Round(time.Second).String())
	}
	switch {
	case now.Slow != "" && now.Slow != last.Slow:
		a.log.Warn("the hypervisor is slow", "reason", now.Slow)
	case now.Slow == "" && last.Slow != "":
		a.log.Info("the hypervisor is not slow any more", "answer", now.Answer.Round(time.Millisecond).String())
	}
	before := map[string]bool{}
	for _, s := range last.Stuck {
		before[s.ID] = true
	}
	for _, s := range now.Stuck {
		if !before[s.ID] {
			a.log.Warn("the hypervisor keeps a machine that has ended; it holds nothing, and is tried again", "vm",
				s.Name, "error", s.Reason)
		}
		delete(before, s.ID)
	}
	for _, s := range last.Stuck {
		if before[s.ID] {
			a.log.Info("the hypervisor has let a machine go that was stuck", "vm", s.Name, "after",
				fmt.Sprintf("%.0f s", time.Since(s.Since).Seconds()))
		}
	}
}

// followEvents takes what the hypervisor says of machines by itself to those who have them.
func (a *watch) followEvents() {
	events := a.hyper.Events(a.ctx)
	a.jobs.Go(func() {
		for e := range events {
			switch {
			case e.NoSpace:
				a.jobs.Go(func() { a.noSpace(e.ID) })
			case e.Watchdog:
				a.jobs.Go(func() { a.watchdog(e.ID) })
			case e.Rebooted:
				a.jobs.Go(func() { a.rebooted(e.ID) })
			case e.Resumed:
				a.jobs.Go(func() { a.machineOf(e.ID).WentOn() })
			default:
				a.Cloud.Ended(e.ID, e.End)
			}
		}
	})
}
