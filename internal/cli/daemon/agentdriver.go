package daemon

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync"

	"github.com/grange-project/grange/internal/agent"
	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/hyper/libvirt"
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

// probeInBackground finds out whether KVM works, as long as that takes: the agent serves meanwhile, and its first VMs
// wait for the first verdict. again has it found out anew, and VMs wait for that; it is nil where the configuration
// says what they run on. stop waits for the probe's end.
func probeInBackground(ctx context.Context, c config.Agent, driver *libvirt.Libvirt, log *slog.Logger) (again,
	stop func()) {
	if c.Accelerator != probing {
		return nil, func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	asked := make(chan struct{}, 1)
	again = func() {
		driver.Forget()
		select {
		case asked <- struct{}{}:
		default: // one that was not read yet will do
		}
	}
	var probe sync.WaitGroup
	probe.Go(func() {
		libvirt.Probe(ctx, libvirt.ProbeConfig{Image: func() (string, string) { return probeImage(c) },
			Timeout: c.ProbeTimeout, Again: asked, CacheFile: filepath.Join(c.StateDir, "kvm-probe.json"),
			Held: func() bool { return agent.Drained(c.StateDir) }},
			func(v libvirt.Verdict) {
				if kernel, _ := probeImage(c); v.Why != "" && kernel == "" {
					log.Info("KVM is tried as soon as there is an image for it", "reason", v.Why)
				} else if v.Why != "" {
					log.Warn("no KVM: software emulation, ten to twenty times slower", "reason", v.Why)
				} else {
					log.Info("KVM works")
				}
				driver.Use(v)
			})
	})
	return again, func() { cancel(); probe.Wait() }
}

func probeImage(c config.Agent) (kernel, initrd string) {
	store, err := vmimage.Open(c.Areas.Images.Path)
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
