package cloud

import (
	"errors"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/agent/machine"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/guest"
	"github.com/grange-project/grange/internal/seed"
)

func testWanted() fleet.WantedVM {
	return fleet.WantedVM{ID: "0b6e8a4c-6a55-4f0e-8f7d-0f5ad4b0a9b1", Name: "web", Hostname: "web.example.org",
		Bridge: "br0", Address: "10.1.0.7/16", MAC: "52:54:0a:01:00:07", Gateway: "10.1.0.1", DNS: []string{"10.1.0.2"},
		Keys: []string{"ssh-rsa A", "ssh-rsa B"}, UserData: []byte("#!/bin/sh\ntrue\n")}
}

func TestFleetGuest(t *testing.T) {
	w := testWanted()
	w.Shape.Scratch = 1 << 30
	j, err := guestJob(w, false)
	if err != nil {
		t.Fatal(err)
	}
	address := &guest.Address{CIDR: "10.1.0.7/16", Gateway: "10.1.0.1", DNS: []string{"10.1.0.2"},
		OnLink: []string{"169.254.169.254"}}
	if diff := cmp.Diff(address, j.Address); diff != "" {
		t.Error(diff)
	}
	files := map[string]guest.File{}
	for _, f := range j.Files {
		files[f.Path] = f
	}
	for path, want := range map[string]string{
		"/etc/hostname":    "web.example.org\n",
		"/etc/hosts":       "127.0.0.1 localhost\n::1 localhost\n10.1.0.7 web.example.org web\n",
		authorizedKeysPath: "ssh-rsa A\nssh-rsa B\n",
		userDataPath:       "#!/bin/sh\ntrue\n",
	} {
		if string(files[path].Content) != want {
			t.Errorf("%s: %q, want %q", path, files[path].Content, want)
		}
	}
	if !files[userDataPath].Own || !files[authorizedKeysPath].Own {
		t.Error("others in the VM can read what may be secret")
	}
	if j.ID != w.ID || j.Hostname != w.Hostname || j.Scratch != machine.ScratchSerial || j.User.UID != 0 {
		t.Errorf("job %+v", j)
	}
	full, err := guestJob(w, true)
	if err != nil || len(full.Files) != 0 || full.Scratch != "" {
		t.Errorf("a full image's job %+v, %v", full, err)
	}
}

// TestFleetGuestUserData: what is no script is told on the console, and cannot be one by the way.
func TestFleetGuestUserData(t *testing.T) {
	for data, says := range map[string]string{
		"":                               "",
		"#cloud-config\nruncmd: [x]\n":   `nothing of "#cloud-config" is carried out`,
		"'; echo pwned; '\"$(id)`id`\\":  "nothing of",
		"\x1f\x8b\x08\x00compressed\xff": "nothing of",
		"Content-Type: multipart/mixed":  "nothing of",
	} {
		w := testWanted()
		w.UserData = []byte(data)
		j, err := guestJob(w, false)
		if err != nil {
			t.Fatal(err)
		}
		script := strings.Split(j.Argv[2], "\n")
		if said := strings.Contains(script[1], "grange: user data"); said != (says != "") {
			t.Fatalf("%q: the second line is %q", data, script[1])
		}
		if says == "" {
			continue
		}
		out, err := exec.Command("/bin/sh", "-c", script[1]).Output()
		if err != nil || !strings.Contains(string(out), says) || strings.Contains(string(out), "uid=") ||
			strings.HasPrefix(string(out), "pwned") {
			t.Errorf("%q: prints %q, %v", data, out, err)
		}
	}
	for _, shell := range []string{"/bin/sh", "/bin/bash"} {
		if out, err := exec.Command(shell, "-n", "-c", cloudScript).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", shell, err, out)
		}
	}
}

func TestFleetSeed(t *testing.T) {
	w := testWanted()
	w.Builds, w.Fresh = 3, 2
	got, err := seedOf(w, "/guest")
	if err != nil {
		t.Fatal(err)
	}
	want := seed.Seed{ID: w.ID + "-2", Hostname: "web.example.org", Guest: "/guest", Keys: w.Keys, UserData: w.UserData,
		Network: &seed.Network{MAC: w.MAC, Address: netip.MustParsePrefix("10.1.0.7/16"),
			Gateway: netip.MustParseAddr("10.1.0.1"), DNS: []netip.Addr{netip.MustParseAddr("10.1.0.2")},
			Domain: "example.org"}}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
		cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Error(diff)
	}
	w.Bridge = ""
	if got, err := seedOf(w, "/guest"); err != nil || got.Network != nil {
		t.Errorf("without a network: %+v, %v", got.Network, err)
	}
	for name, spoil := range map[string]func(w *fleet.WantedVM){
		"address":     func(w *fleet.WantedVM) { w.Address = "10.1.0.7" },
		"IPv6":        func(w *fleet.WantedVM) { w.Address = "2001:db8::1/64" },
		"gateway":     func(w *fleet.WantedVM) { w.Gateway = "gate" },
		"name server": func(w *fleet.WantedVM) { w.DNS = []string{"dns.example.org"} },
	} {
		w := testWanted()
		spoil(&w)
		var e *farm.Error
		if _, err := seedOf(w, "/guest"); !errors.As(err, &e) || e.Code != farm.CodeBadAddress {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := guestJob(w, false); !errors.As(err, &e) || e.Code != farm.CodeBadAddress {
			t.Errorf("%s: %v", name, err)
		}
	}
}
