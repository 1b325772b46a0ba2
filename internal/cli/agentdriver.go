package cli

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync"

	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/hyper/libvirt"
	"github.com/grange-project/grange/internal/sdnotify"
	"github.com/grange-project/grange/internal/vmimage"
)

// probing stands for the accelerator until it is known.
const probing = "auto"

// newDriver makes the agent's hypervisor. What its machines run on may not be known yet.
func newDriver(c config.Agent) (*libvirt.Libvirt, error) {
	accelerator := libvirt.Accelerator(c.Accelerator)
	if c.Accelerator == probing {
		accelerator = ""
	}
	return libvirt.New(libvirt.Config{Socket: c.Libvirt, RunDir: c.RunDir, Accelerator: accelerator})
}

// probeInBackground finds out whether KVM works, as long as that takes: the agent serves meanwhile, and its first VMs wait for the first
// verdict. stop waits for the probe's end.
func probeInBackground(ctx context.Context, c config.Agent, driver *libvirt.Libvirt, log *slog.Logger) (stop func()) {
	if c.Accelerator != probing {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var probe sync.WaitGroup
	probe.Go(func() {
		libvirt.Probe(ctx, libvirt.ProbeConfig{Image: func() (string, string) { return probeImage(c) }, Timeout: c.ProbeTimeout,
			CacheFile: filepath.Join(c.StateDir, "kvm-probe.json")}, func(v libvirt.Verdict) {
			if v.Why != "" {
				log.Warn("no KVM: software emulation, ten to twenty times slower", "reason", v.Why)
			} else {
				log.Info("KVM works")
			}
			driver.Use(v)
		})
	})
	return func() { cancel(); probe.Wait() }
}

func probeImage(c config.Agent) (kernel, initrd string) {
	store, err := vmimage.Open(filepath.Join(c.StateDir, "images"))
	if err != nil {
		return "", ""
	}
	defer store.Close()
	image, err := store.Get(vmimage.MicroName)
	if err != nil {
		return "", ""
	}
	return image.Kernel(), image.Initrd()
}

// shownAccelerator is what VMs run on, for people.
func shownAccelerator(v libvirt.Verdict) string {
	switch {
	case v.Accelerator == "":
		return "not known yet: a guest is booted under KVM"
	case v.Why != "":
		return string(v.Accelerator) + " (" + v.Why + ")"
	}
	return string(v.Accelerator)
}

// notify reports to systemd.
func notify(log *slog.Logger, state string) {
	if err := sdnotify.Send(state); err != nil {
		log.Warn("systemd cannot be told how the service does", "error", err)
	}
}
