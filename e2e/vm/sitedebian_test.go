package vm

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/grange-project/grange/e2e/lab"
)

// TestDebianImageOnSiteNetwork has a full image on a site's network, once with the addresses of its lease, and once
// with one that the network's own DHCP knows.
func TestDebianImageOnSiteNetwork(t *testing.T) {
	if os.Getenv("GRANGE_SLOW") == "" {
		t.Skip("takes minutes; GRANGE_SLOW=1 runs it")
	}
	const dnsmasq = "/usr/sbin/dnsmasq"
	if _, err := os.Stat(dnsmasq); err != nil {
		t.Skip("needs dnsmasq, of dnsmasq-base")
	}
	network := newNetwork(t, "sited", "link add br0 type bridge mcast_snooping 0", "addr add 10.77.0.1/16 dev br0",
		"addr add 2001:db8::1/64 dev br0 nodad", "link set br0 up")
	list := filepath.Join(t.TempDir(), "grid.leases")
	config := strings.Replace(strings.Replace(siteNetworkConfig, "LIST", list, 1), "closed = true", "", 1)
	l := otherHost(t, lab.Options{Network: "/run/netns/" + network, Inside: true, NoImage: true, Config: config})
	disk := os.Getenv("GRANGE_TEST_DEBIAN") // one that was built before
	if disk == "" {
		disk = builtDisk(t, `kind = "debian"`)
	}
	run(t, l.Grange(ctx(t), "image", "import", "--name", "debian", disk), "").wantCode(t, 0)
	dhcp := exec.CommandContext(t.Context(), "/usr/bin/nsenter", "--net=/run/netns/"+network, "--", dnsmasq, "-k",
		"--conf-file=/dev/null", "--port=0", "--interface=br0", "--bind-interfaces", "--leasefile-ro", "--pid-file",
		"--dhcp-range=10.77.0.0,static,255.255.0.0", "--dhcp-host=52:54:00:77:00:14,10.77.0.14")
	if err := dhcp.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { dhcp.Process.Kill(); dhcp.Wait() }()
	for lease, wants := range map[string][]string{
		"wn1 52:54:00:77:00:11 10.77.0.11/16 2001:db8::11/64": {"inet 10.77.0.11/16", "inet6 2001:db8::11/64"},
		"wn4 52:54:00:77:00:14":                               {"inet 10.77.0.14/16"},
	} {
		if err := os.WriteFile(list, []byte(lease+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		// A job may be there before DHCP has answered.
		r := run(t, l.Exec(ctx(t), "--image", "debian", "--memory", "1G", "--network", "grid", "--", "sh", "-c",
			"hostname; for i in $(seq 60); do ip address | grep -q 'inet 10[.]77' && break; sleep 1; done; ip address"), "")
		for _, want := range append(wants, lease[:3]) {
			if r.code != 0 || !strings.Contains(r.out, want) {
				t.Errorf("no %q: status %d, %s%s", want, r.code, r.out, r.errors)
			}
		}
	}
}
