package vm

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
)

const overlayPeerVar = "GRANGE_TEST_OVERLAY_PEER" // name of another host's network

// joinOverlay makes by hand what another host has of a VXLAN network.
func joinOverlay(t *testing.T, peer string) {
	t.Helper()
	for _, args := range []string{"addr add 192.0.2.2/24 dev eno2", "link set eno2 up",
		"link add vx type vxlan id 7001 local 192.0.2.2 remote 192.0.2.1 dstport 4789", "addr add 10.77.0.1/16 dev vx",
		"link set vx mtu 1450 up"} {
		command(t, append([]string{"/usr/sbin/ip", "-n", peer}, strings.Fields(args)...)...)
	}
}

// overlay makes a cloud VM in a VXLAN network that reaches over to another host.
func (h *cloudHost) overlay(t *testing.T) {
	h.name(t, 256*farm.MiB, "#!/bin/sh\necho MTU is $(cat /sys/class/net/eth0/mtu)\n"+
		"until wget -qO- http://169.254.169.254/latest/meta-data/instance-id; do sleep 1; done\necho\n")
	h.vm.Bridge, h.vm.Network = "", "vxlan:7001"
	h.want(t, power("on"), isUp)
	s, err := h.Cloud.Stream(t.Context(), fleet.StreamOrder{VM: h.vm.ID, Kind: fleet.StreamConsole})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	console := newConsoleText(s)
	console.await(t, "MTU is 1450")
	console.await(t, h.vm.ID)
	greeting := []string{"/usr/bin/nsenter", "--net=/run/netns/" + os.Getenv(overlayPeerVar), "--", "/bin/bash", "-c",
		"exec 3<>/dev/tcp/" + cloudAddress + "/22 && head -c 8 <&3"}
	for deadline := time.Now().Add(limit); ; time.Sleep(time.Second) {
		out, err := exec.CommandContext(t.Context(), greeting[0], greeting[1:]...).CombinedOutput()
		if err == nil && string(out) == "SSH-2.0-" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the other host hears %q from the VM, %v", out, err)
		}
	}
	if out := command(t, "/usr/sbin/ip", "link", "show"); !strings.Contains(out, "gvxlan7001p") {
		t.Errorf("the host has\n%s", out)
	}
	h.want(t, power("off"), isOff)
	if out := command(t, "/usr/sbin/ip", "link", "show"); strings.Contains(out, "gvxlan") {
		t.Errorf("with the VM off the host has\n%s", out)
	}
	h.want(t, power("deleted"), isGone)
}
