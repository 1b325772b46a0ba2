package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/e2e/lab"
	"github.com/grange-project/grange/internal/rawqemu"
)

// rawBIOS is the raw side's firmware; empty for QEMU's own choice.
var rawBIOS string

// measureBoot takes turns between raw QEMU and `grange exec true`, in rounds of two pairs: exec, raw, raw, exec. Where
// every second process is slower, as when memory that one gave back is dear for the next, both sides get their share of
// it. A first run of each does not count.
func (f *figures) measureBoot(ctx context.Context, l *lab.Lab, rounds int) error {
	guest, err := rawGuest(l)
	if err != nil {
		return err
	}
	var raw, exec, ratios []float64
	phases := map[string][]float64{}
	cpus := ""
	oneExec := func() (float64, error) {
		began := time.Now()
		seen, on, err := execTrue(ctx, l)
		took := milliseconds(time.Since(began))
		if cpus == "" {
			cpus = on
		}
		if err == nil && on != cpus {
			err = fmt.Errorf("the VM moved from CPU %s to %s: something else takes CPUs of this lab", cpus, on)
		}
		for _, p := range seen {
			phases[p.Name] = append(phases[p.Name], p.Milliseconds)
		}
		return took, err
	}
	oneRaw := func() (float64, error) {
		took, err := rawqemu.Boot(ctx, guest, cpus)
		return milliseconds(took), err
	}
	if _, err := inTurn(oneExec, oneRaw); err != nil {
		return err
	}
	clear(phases)
	for i := range rounds {
		t, err := inTurn(oneExec, oneRaw, oneRaw, oneExec)
		if err != nil {
			return err
		}
		e, r := (t[0]+t[3])/2, (t[1]+t[2])/2
		fmt.Printf("round %2d: raw %.0f and %.0f ms, grange exec true %.0f and %.0f ms, ratio %.3f\n", i+1, t[1], t[2],
			t[0], t[3], e/r)
		raw, exec, ratios = append(raw, r), append(exec, e), append(ratios, e/r)
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

// rawGuest is what the raw side boots.
func rawGuest(l *lab.Lab) (rawqemu.Guest, error) {
	guest, err := l.RawGuest()
	guest.BIOS = rawBIOS
	return guest, err
}

// inTurn measures one thing after the other.
func inTurn(measures ...func() (float64, error)) ([]float64, error) {
	var took []float64
	for _, measure := range measures {
		ms, err := measure()
		if err != nil {
			return nil, err
		}
		took = append(took, ms)
	}
	return took, nil
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// execTrue runs `grange exec true` and returns its phases, and the CPU of its VM.
func execTrue(ctx context.Context, l *lab.Lab) (phases []api.Phase, cpus string, err error) {
	cmd := l.Exec(ctx, "--json", "--", "true")
	var events bytes.Buffer
	cmd.Stderr = &events
	if err := cmd.Run(); err != nil {
		return nil, "", fmt.Errorf("grange exec true: %w\n%s", err, events.String())
	}
	for decoder := json.NewDecoder(&events); ; {
		var e struct {
			VM     *api.VM     `json:"vm"`
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
		if e.VM != nil {
			cpus = e.VM.Plan.VCPUs[0]
		}
	}
	if len(phases) == 0 || cpus == "" {
		return nil, "", errors.New("grange exec --json told no phases, or no VM")
	}
	return phases, cpus, nil
}
