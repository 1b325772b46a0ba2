// Command benchstart measures what `grange exec true` costs beyond booting the same guest by hand. The two take turns;
// the last line is JSON with the medians of both and of their ratios.
//
// The raw side is one QEMU process with the same kernel, initramfs, kernel command line, CPU model, memory and kind of
// devices, on the same CPU and with the firmware that QEMU takes by itself (-raw-bios changes that), timed from its
// start to the first line of grange-guest on the serial console, where it has done nothing yet. The other side is the
// whole command: program start, grant, disks, libvirt, boot, job, exit status, clean-up.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"

	"github.com/grange-project/grange/e2e/lab"
	"github.com/grange-project/grange/e2e/lastline"
	"github.com/grange-project/grange/e2e/metal/metallab"
)

// figures is the line at the end.
type figures struct {
	Ratio          float64            `json:"ratio"`
	RatioLow       float64            `json:"ratio_low"` // quartiles of the rounds
	RatioHigh      float64            `json:"ratio_high"`
	RawMS          float64            `json:"raw_ms"`
	ExecMS         float64            `json:"exec_ms"`
	Pairs          int                `json:"pairs"`
	Phases         map[string]float64 `json:"phases"` // milliseconds
	StartsPerS     float64            `json:"starts_per_s"`
	RawStartsPerS  float64            `json:"raw_starts_per_s"`
	AgentBytesIdle uint64             `json:"agent_bytes_idle"`
	AgentBytesPer  int64              `json:"agent_bytes_per_vm"`
	Accelerator    string             `json:"accelerator"`
}

func main() {
	rounds := flag.Int("rounds", 8, "rounds of two pairs each")
	flag.StringVar(&rawBIOS, "raw-bios", "", "firmware of the raw side, as /usr/share/qemu/qboot.rom")
	starts := flag.Int("starts", 30, "paused VMs to start on each side")
	metal := flag.Bool("metal", false,
		"under KVM, on an emulated host with Debian's libvirt and AppArmor, with the packages of this tree")
	suite := flag.String("suite", metallab.Suites[0], "`SUITE` of Debian of that host")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	measure := func() error { return run(ctx, *rounds, *starts) }
	if *metal {
		flag.Visit(func(f *flag.Flag) {
			if f.Name != "metal" && f.Name != "suite" {
				fmt.Fprintf(os.Stderr, "benchstart: -%s is not for -metal, where the host measures by itself\n", f.Name)
				os.Exit(2)
			}
		})
		measure = func() error { return measureMetal(ctx, *suite) }
	}
	if err := measure(); err != nil {
		fmt.Fprintln(os.Stderr, "benchstart:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, rounds, starts int) error {
	fmt.Println("building, starting libvirtd and the agent, building the micro image")
	l, err := lab.Start(ctx, lab.Options{})
	if err != nil {
		return err
	}
	defer l.Close()
	f := figures{Pairs: 2 * rounds, Accelerator: lab.Accelerator()}
	if err := f.measureBoot(ctx, l, rounds); err != nil {
		return err
	}
	if err := f.measureStarts(ctx, l, starts); err != nil {
		return err
	}
	if err := f.measureMemory(ctx, l); err != nil {
		return err
	}
	if left := l.Leaks(ctx); len(left) > 0 {
		return fmt.Errorf("left on the host: %v", left)
	}
	return lastline.Print(f, 0)
}

func median(values []float64) float64 { return quantile(values, 0.5) }

// quantile interpolates between the two nearest values.
func quantile(values []float64, q float64) float64 {
	s := slices.Sorted(slices.Values(values))
	if len(s) == 0 {
		return 0
	}
	at := q * float64(len(s)-1)
	low := int(at)
	high := min(low+1, len(s)-1)
	return s[low] + (at-float64(low))*(s[high]-s[low])
}
