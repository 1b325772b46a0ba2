// Command benchsizes fills an emulated host with VMs of three sizes by `grange bench run`, and then measures the page
// tables of a guest with nested page tables and without: how much slower shadow paging is says what `ept-off` costs.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"github.com/grange-project/grange/e2e/lastline"
	"github.com/grange-project/grange/e2e/metal/metallab"
)

// figures are the last line.
type figures struct {
	Sizes  []line   `json:"sizes"`
	NPTOff interval `json:"npt_off"` // the workload pages without nested page tables, as a part of that with them
	// measurements that were begun anew, for a VM or host was cut by the emulation of its processor's virtualization
	Repeated int `json:"repeated"`
	Seconds  int `json:"seconds"`
}

// line is what VMs of a size do of a workload, as a part of what the host does.
type line struct {
	Size     string   `json:"size"`
	Workload string   `json:"workload"`
	Ratio    interval `json:"ratio"`
}

type interval struct {
	Median float64 `json:"median"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
}

// over is how much a is of b: the widest that both intervals allow.
func (a interval) over(b interval) interval {
	return interval{a.Median / b.Median, a.Low / b.High, a.High / b.Low}
}

// measurement is what of that of `grange bench run --json` is needed here.
type measurement struct {
	Host struct {
		Emulated bool
		KVM      map[string]string
	}
	Results []struct {
		Size     struct{ VMs, CPUs int }
		Workload string
		Ratio    interval
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "benchsizes:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	budget := flag.Duration("budget", 30*time.Second, "time for each workload at each size")
	output := flag.String("output", "", "`DIR` for the table, as text and as CSV, and the picture")
	flag.Parse()
	began := time.Now()
	f := &figures{}
	err := f.on(ctx, func(h *metallab.Host) error { return f.sizes(ctx, h, *budget, *output) })
	if err == nil {
		err = f.on(ctx, func(h *metallab.Host) error { return f.npt(ctx, h, *budget) })
	}
	if err != nil {
		return err
	}
	f.Seconds = int(time.Since(began).Seconds())
	notSlower := f.NPTOff.High >= 1
	if err := lastline.Print(f, lastline.Count(notSlower)); err != nil {
		return err
	}
	if notSlower {
		return errors.New("VMs without nested page tables are not shown to be slower")
	}
	return nil
}

// most is how often something is tried: a fault of the emulator ends a VM, or a host, now and then; a fault of grange
// comes again and again.
const most = 3

// on does something on a host; on another one where that was cut by the emulator. QEMU 7.2 emulates KVM without nested
// page tables, which 11.1 does not, and ends fewer VMs of several CPUs.
func (f *figures) on(ctx context.Context, do func(h *metallab.Host) error) error {
	for try := 1; ; try++ {
		h, err := metallab.StartInstalled(ctx, metallab.Options{Emulator: metallab.QEMU7})
		if err != nil {
			return err
		}
		_, err = h.Run(ctx, `sed -i '1i accelerator = "kvm"' /etc/grange/agent.toml
systemctl restart grange-agent`)
		if err == nil {
			err = do(h)
		}
		cut := err != nil && h.Cut()
		if err = errors.Join(err, h.Close()); !cut || try == most {
			return err
		}
		fmt.Println(err)
		f.Repeated++
	}
}

// sizes are VMs of three sizes.
func (f *figures) sizes(ctx context.Context, h *metallab.Host, budget time.Duration, output string) error {
	sizes, err := f.bench(ctx, h, fmt.Sprintf("%s --size 1x4,2x2,4x1 --budget %v -o /root/sizes.csv --svg /root/sizes.svg",
		workloads, budget))
	if err != nil {
		return err
	}
	for _, r := range sizes.Results {
		f.Sizes = append(f.Sizes, line{fmt.Sprintf("%dx%d", r.Size.VMs, r.Size.CPUs), r.Workload, r.Ratio})
	}
	return save(ctx, h, output)
}

// npt measures page tables of guests with nested page tables, and without.
func (f *figures) npt(ctx context.Context, h *metallab.Host, budget time.Duration) error {
	var pages [2]interval
	for npt := range pages {
		fmt.Printf("pages, with npt=%d\n", npt)
		if _, err := h.Run(ctx, fmt.Sprintf(reload, npt)); err != nil {
			return err
		}
		m, err := f.bench(ctx, h, fmt.Sprintf("pages --size 1x1 --each 500ms --budget %v", 2*budget))
		if err != nil {
			return err
		}
		if got, want := m.Host.KVM["kvm_amd.npt"], []string{"N", "Y"}[npt]; got != want {
			return fmt.Errorf("npt is %q, and not %s", got, want)
		}
		if len(m.Results) != 1 || m.Results[0].Ratio.Low == 0 {
			return fmt.Errorf("no interval of pages with npt=%d: %+v", npt, m)
		}
		pages[npt] = m.Results[0].Ratio
		fmt.Printf("pages, with npt=%d: %.4f of the host (%.4f to %.4f)\n", npt, pages[npt].Median, pages[npt].Low,
			pages[npt].High)
	}
	f.NPTOff = pages[0].over(pages[1])
	return nil
}

// workloads are all but fork: guests that start processes all the time are cut, or stand still, where the processor's
// virtualization is emulated.
const workloads = "integer float memory chase pages"

// reload loads KVM with nested page tables on or off. libvirt and the agent have it open for moments, for their probes,
// and an agent that asked libvirt while the module was out believes that there is no KVM.
const reload = `for i in $(seq 60); do
	modprobe -r kvm_amd && break
	sleep 1
done
modprobe kvm_amd npt=%d
udevadm settle
systemctl restart grange-agent
for i in $(seq 60); do
	grange host show --json | grep -q '"accelerator": "kvm"' && break
	sleep 1
done`

// bench is one `grange bench run` there. A VM may end, or stand still, by the emulator's fault.
func (f *figures) bench(ctx context.Context, h *metallab.Host, words string) (m measurement, err error) {
	out := ""
	for try := 1; ; try++ {
		if out, err = h.Run(ctx, "grange bench run --json "+words); err == nil {
			break
		}
		cut := strings.Contains(err.Error(), "a VM has gone") || strings.Contains(err.Error(), "more than 1s")
		if !cut || try == most {
			return m, err
		}
		fmt.Println(err)
		f.Repeated++
	}
	var all []measurement
	if err := json.Unmarshal([]byte(out), &all); err != nil || len(all) != 1 {
		return m, fmt.Errorf("%q: %w", out, err)
	}
	if all[0].Host.Emulated {
		return m, errors.New("the VMs ran without KVM")
	}
	return all[0], nil
}

// save prints the table and brings table and picture from the host.
func save(ctx context.Context, h *metallab.Host, to string) error {
	for _, f := range []struct{ name, command string }{{"sizes.txt", "grange bench show"},
		{"sizes.csv", "cat /root/sizes.csv"}, {"sizes.svg", "cat /root/sizes.svg"}} {
		text, err := h.Run(ctx, f.command)
		if err != nil {
			return err
		}
		if strings.HasSuffix(f.name, ".txt") {
			fmt.Print(text)
		}
		if to != "" {
			if err := os.WriteFile(filepath.Join(to, f.name), []byte(text), 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}
