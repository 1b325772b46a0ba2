package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/e2e/lab"
)

// guestUp is the first thing that grange-guest writes.
const guestUp = "grange-guest: up"

// measureBoot takes turns between raw QEMU and `grange exec true`, after one run of each that does not count.
func (f *figures) measureBoot(ctx context.Context, l *lab.Lab, pairs int) error {
	image, err := l.Image()
	if err != nil {
		return err
	}
	var raw, exec, ratios []float64
	phases := map[string][]float64{}
	for i := range pairs + 1 {
		r, err := rawBoot(ctx, image)
		if err != nil {
			return err
		}
		began := time.Now()
		seen, err := execTrue(ctx, l)
		if err != nil {
			return err
		}
		e := milliseconds(time.Since(began))
		if i == 0 {
			continue
		}
		fmt.Printf("pair %2d: raw %7.1f ms, grange exec true %7.1f ms, ratio %.3f\n", i, r, e, e/r)
		raw, exec, ratios = append(raw, r), append(exec, e), append(ratios, e/r)
		for _, p := range seen {
			phases[p.Name] = append(phases[p.Name], p.Milliseconds)
		}
	}
	f.RawMS, f.ExecMS, f.Ratio = median(raw), median(exec), median(ratios)
	f.RatioLow, f.RatioHigh = quantile(ratios, 0.25), quantile(ratios, 0.75)
	f.Phases = map[string]float64{}
	for _, name := range []string{"grant", "image", "disk", "define", "boot", "guest", "job", "clean", "total"} {
		f.Phases[name] = median(phases[name])
		fmt.Printf("%-8s %8.1f ms\n", name, f.Phases[name])
	}
	return nil
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// rawArgs is a QEMU as one would start it by hand for this guest: as lean as ours.
func rawArgs(image lab.Image) []string {
	cpu, accel := "max,la57=off", "tcg"
	if lab.Accelerator() == "kvm" {
		cpu, accel = "host", "kvm"
	}
	return []string{"-nodefaults", "-no-user-config", "-display", "none", "-machine", "q35,usb=off,vmport=off", "-accel", accel, "-cpu", cpu,
		"-smp", "1", "-m", "1024", "-no-hpet", "-no-reboot", "-kernel", image.Kernel, "-initrd", image.Initrd, "-append", image.Cmdline,
		"-device", "virtio-serial-pci", "-chardev", "null,id=c0", "-device", "virtserialport,chardev=c0,name=org.grange.control"}
}

// rawBoot is the time from QEMU's start to grange-guest's first word.
func rawBoot(ctx context.Context, image lab.Image) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "qemu-system-x86_64", append(rawArgs(image), "-serial", "stdio")...)
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	console, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	defer func() { cancel(); cmd.Wait() }()
	for lines := bufio.NewScanner(console); lines.Scan(); {
		if strings.Contains(lines.Text(), guestUp) {
			return milliseconds(time.Since(began)), nil
		}
	}
	return 0, fmt.Errorf("raw QEMU: the guest never came up: %s", complaint.String())
}

// execTrue runs `grange exec true` and returns its phases.
func execTrue(ctx context.Context, l *lab.Lab) ([]api.Phase, error) {
	cmd := l.Exec(ctx, "--json", "--", "true")
	var events bytes.Buffer
	cmd.Stderr = &events
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("grange exec true: %w\n%s", err, events.String())
	}
	var phases []api.Phase
	for decoder := json.NewDecoder(&events); ; {
		var e struct {
			Phase  *api.Phase  `json:"phase"`
			Phases []api.Phase `json:"phases"`
		}
		if decoder.Decode(&e) != nil {
			break
		}
		if e.Phase != nil {
			phases = append(phases, *e.Phase)
		}
		phases = append(phases, e.Phases...)
	}
	if len(phases) == 0 {
		return nil, errors.New("grange exec --json told no phases")
	}
	return phases, nil
}
