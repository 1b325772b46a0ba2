package libvirt

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"time"

	"github.com/grange-project/grange/internal/hyper"
)

const (
	// slowAnswer is what libvirt never needs unless it probes QEMU.
	slowAnswer = 2 * time.Second
	// measureEvery is how often libvirt is measured, and measureSlow how often a slow one is: each time it probes QEMU.
	measureEvery = time.Minute
	measureSlow  = 5 * time.Minute
)

// health is what we know of the daemon.
type health struct {
	mu     sync.Mutex
	away   string
	since  time.Time
	answer time.Duration
	slow   string
}

// connected notes whether the daemon answers.
func (h *health) connected(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case err == nil:
		h.away, h.since = "", time.Time{}
	case h.away == "":
		h.away, h.since = err.Error(), time.Now()
	default:
		h.away = err.Error()
	}
}

// measured notes how long an answer took; slow says why, where it is long each time.
func (h *health) measured(took time.Duration, slow string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.answer, h.slow = took, slow
}

// Daemon returns how libvirt does.
func (l *Libvirt) Daemon() hyper.Daemon {
	h := &l.daemon.health
	h.mu.Lock()
	d := hyper.Daemon{Away: h.away, Since: h.since, Answer: h.answer, Slow: h.slow}
	h.mu.Unlock()
	d.Stuck = l.dropper.queue.stuck()
	return d
}

// measure finds out, as long as a connection lasts, how long libvirt takes, and whether it is slow at each request or
// only was at the first one, when it had to probe QEMU.
func (d *daemon) measure(s *session, took time.Duration) {
	d.health.measured(took, "")
	pause := measureEvery
	if took > slowAnswer {
		pause = 0
	}
	for {
		select {
		case <-time.After(pause):
		case <-s.ended:
			return
		case <-s.retired:
			return
		case <-d.closing:
			return
		}
		began := time.Now()
		if _, err := within(d, s, hostTimeout, "read libvirt's capabilities", s.ConnectGetCapabilities); err != nil {
			return
		}
		slow := ""
		pause = measureEvery
		if took = time.Since(began); took > slowAnswer {
			pause = measureSlow
			slow = whySlow(took, opens("/dev/kvm", os.Getuid(), os.Getgid()), opens("/dev/kvm", s.owner[0], s.owner[1]),
				s.owner[0], d.accelerator.current().Accelerator == TCG)
		}
		d.health.measured(took, slow)
	}
}

// whySlow explains a libvirt that takes long for each request. asRoot and asQEMU are why /dev/kvm cannot be opened;
// emulated: it was tried, and no guest runs under KVM.
func whySlow(took time.Duration, asRoot, asQEMU error, uid int, emulated bool) string {
	text := fmt.Sprintf("libvirt takes %.0f s for each request that needs to know what QEMU can do: ", took.Seconds())
	switch {
	case asRoot == nil && asQEMU != nil:
		return text + fmt.Sprintf("it probes QEMU again each time, for /dev/kvm opens for root and not for QEMU's "+
			"own user, %d; try: %s", uid, openKVM)
	case asQEMU == nil && emulated:
		return text + "it probes QEMU again each time where /dev/kvm opens and QEMU does not work under KVM; " +
			"try: a private libvirtd, which does not see such a /dev/kvm (`grange-private-libvirtd`)"
	}
	return text + "see its log, and what else loads this host"
}

// openKVM is what lets QEMU's own user use KVM, as udev's rules of QEMU's packages have it.
const openKVM = "chgrp kvm /dev/kvm && chmod 0660 /dev/kvm"

// opens reports whether a user can open a device for reading and writing, with all of the user's groups, as libvirt has
// QEMU.
func opens(device string, uid, gid int) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second) // the name service may be away
	defer cancel()
	argv := []string{"/bin/sh", "-c", `exec 3<>"$0"`, device}
	if uid != os.Getuid() {
		argv = append([]string{"setpriv", "--reuid", strconv.Itoa(uid), "--regid", strconv.Itoa(gid), "--init-groups",
			"--"}, argv...)
	}
	return exec.CommandContext(ctx, argv[0], argv[1:]...).Run()
}
