package hostfacts_test

import (
	"archive/tar"
	"bytes"
	"io"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hostfacts"
)

// wired is a host with a card in a bridge, a virtual card, an NVMe controller whose node is not known, and an agent.
func wired() fstest.MapFS {
	out := fstest.MapFS{}
	for path, text := range map[string]string{
		"proc/meminfo":                              "MemTotal: 1048576 kB\n",
		"sys/devices/system/cpu/online":             "0\n",
		"sys/devices/system/cpu/cpu0/online":        "1\n",
		"sys/class/net/eth0/device/numa_node":       "1\n",
		"sys/class/net/lo/mtu":                      "65536\n",
		"sys/class/net/br0/brif/eth0/port_no":       "0x1\n",
		"sys/class/nvme/nvme0/device/numa_node":     "-1\n",
		"etc/grange/agent.toml":                     agentConfig,
		"sys/devices/system/node/node0/cpulist":     "0\n",
		"sys/devices/system/node/node0/meminfo":     "Node 0 MemTotal: 1048576 kB\n",
		"sys/devices/system/cpu/cpu0/topology/core": "",
	} {
		out[path] = &fstest.MapFile{Data: []byte(text)}
	}
	return out
}

const agentConfig = `
default_image = "el9"

[default_shape]
page_size = "0"

[shapes.large]
cpus = 8

[[policy]]
name = "secret-experiment"
users = ["alice"]
`

func TestDevicesAndShapes(t *testing.T) {
	h, err := hostfacts.Read(wired())
	if err != nil {
		t.Fatal(err)
	}
	devices := []farm.HostDevice{{Name: "eth0", Bridge: "br0", Node: 1}, {Name: "nvme0", Node: -1}}
	if d := cmp.Diff(devices, h.Devices); d != "" {
		t.Errorf("devices (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]farm.ShapePages{{Pages: "0"}, {Name: "large", CPUs: 8}}, h.Shapes); d != "" {
		t.Errorf("shapes (-want +got):\n%s", d)
	}
}

// A recording has what an audit reads of the agent's configuration, and nobody's name.
func TestRecordingKeepsShapesOnly(t *testing.T) {
	var b bytes.Buffer
	if _, err := hostfacts.Record(wired(), false, false, &b, time.Unix(0, 0)); err != nil {
		t.Fatal(err)
	}
	found := false
	for r := tar.NewReader(&b); ; {
		head, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "alice") || strings.Contains(string(text), "secret-experiment") {
			t.Errorf("%s has names of the policy:\n%s", head.Name, text)
		}
		found = found || strings.HasSuffix(head.Name, "agent.toml") && strings.Contains(string(text), "large")
	}
	if !found {
		t.Error("the recording lacks the agent's shapes")
	}
}
