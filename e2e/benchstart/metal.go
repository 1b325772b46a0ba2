package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/grange-project/grange/e2e/lastline"
	"github.com/grange-project/grange/e2e/metal/metallab"
)

// metalFigures is the line at the end of a measurement on an emulated host.
type metalFigures struct {
	Ratio       float64            `json:"ratio"`
	RatioLow    float64            `json:"ratio_low"` // quartiles of the runs
	RatioHigh   float64            `json:"ratio_high"`
	RawMS       float64            `json:"raw_ms"`
	ExecMS      float64            `json:"exec_ms"`
	Pairs       int                `json:"pairs"`
	Phases      map[string]float64 `json:"phases"` // milliseconds
	Suite       string             `json:"suite"`
	Accelerator string             `json:"accelerator"`
	Confined    string             `json:"confined"`
}

const (
	runs    = 4 // of two rounds and more each
	repeats = 2 // hosts that the emulator may end, see metallab.Host.Cut
)

// measureMetal measures starts under KVM on a host as Debian installs it, with the packages of this tree: emulation
// makes a boot so slow that it hides what libvirt, AppArmor and we take. What measures is the host's own `grange
// selftest`.
func measureMetal(ctx context.Context, suite string) error {
	f := metalFigures{Suite: suite, Phases: map[string]float64{}}
	all := map[string][]float64{}
	for again := 0; len(all["ratio"]) < runs; again++ {
		cut, err := f.onHost(ctx, suite, all)
		if err != nil && (!cut || again == repeats) {
			return err
		}
		if cut {
			fmt.Println("the emulator ended the host; on another one:")
		}
	}
	for name, values := range all {
		if phase, ok := strings.CutPrefix(name, "phase_"); ok {
			f.Phases[strings.TrimSuffix(phase, "_ms")] = median(values)
		}
	}
	f.Ratio, f.RatioLow, f.RatioHigh = median(all["ratio"]), quantile(all["ratio"], 0.25), quantile(all["ratio"], 0.75)
	f.RawMS, f.ExecMS = median(all["raw_ms"]), median(all["ms"])
	return lastline.Print(f, 0)
}

// onHost adds what is left of the runs, on a host of its own. cut reports whether the emulator ended that.
func (f *metalFigures) onHost(ctx context.Context, suite string, all map[string][]float64) (cut bool, err error) {
	h, err := metallab.StartInstalled(ctx, metallab.Options{Suite: suite})
	if err != nil {
		return false, err
	}
	defer h.Close()
	if f.Confined, err = h.Run(ctx, "grange agent --check | sed -n 's/^sVirt *//p'"); err != nil {
		return h.Cut(), err
	}
	for i := len(all["ratio"]); i < runs; i++ {
		figures, err := f.selftest(ctx, h)
		if err != nil {
			return h.Cut(), err
		}
		fmt.Printf("run %d: raw %.0f ms, grange exec true %.0f ms, ratio %.3f\n", i+1, figures["raw_ms"], figures["ms"],
			figures["ratio"])
		for name, value := range figures {
			all[name] = append(all[name], value)
		}
		f.Pairs += int(figures["pairs"])
	}
	return false, nil
}

// selftest returns the figures of the check `start`. One that is not good has them too.
func (f *metalFigures) selftest(ctx context.Context, h *metallab.Host) (map[string]float64, error) {
	var r struct {
		Checks []struct {
			Name, Verdict, Reason string
			Figures               map[string]float64
		}
	}
	text, err := h.Run(ctx, "grange selftest --json --only kvm,start || test $? = 4")
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return nil, err
	}
	for _, c := range r.Checks {
		switch {
		case c.Name == "kvm" && c.Verdict != "good":
			return nil, fmt.Errorf("this host cannot be measured: %s", c.Reason)
		case c.Name == "kvm":
			f.Accelerator = "kvm"
		case c.Name == "start" && c.Figures["ratio"] > 0:
			return c.Figures, nil
		case c.Name == "start":
			return nil, fmt.Errorf("no start was measured: %s", c.Reason)
		}
	}
	return nil, fmt.Errorf("no check of the start in %s", text)
}
