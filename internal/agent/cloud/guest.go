package cloud

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/agent/machine"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/guest"
	"github.com/grange-project/grange/internal/metadata"
	"github.com/grange-project/grange/internal/seed"
	"github.com/grange-project/grange/internal/wire"
)

// Of the micro image, while it is a cloud VM.
const (
	userDataPath       = "/var/lib/grange/user-data"
	authorizedKeysPath = "/root/.ssh/authorized_keys"
)

// cloudScript is what a cloud VM of the micro image runs, as root, until it is powered off: an SSH server, the user's
// script, and a shell on the console. The image is in memory and starts anew each time, and so does the script; what
// the VM has of a disk is /tmp, which keeps the SSH server's keys, so that people are not warned of another machine.
// dropbear's own words go to the kernel's log: there they take no more and no more memory, whoever tries passwords.
const cloudScript = `keys=/etc/dropbear
if [ -n "$GRANGE_SCRATCH" ]; then keys=/tmp/.grange; fi
if command -v dropbear >/dev/null; then
	mkdir -p -m 0700 $keys
	listen=
	for t in ed25519 ecdsa; do
		[ -s $keys/$t ] || { rm -f $keys/$t.new; dropbearkey -t $t -f $keys/$t.new >/dev/null 2>&1 && mv $keys/$t.new $keys/$t; }
		echo "grange: host key $(dropbearkey -y -f $keys/$t | sed -n 's/^Fingerprint: //p') ($t)"
		listen="$listen -r $keys/$t"
	done
	(while :; do dropbear -F -E -s $listen; sleep 1; done) </dev/null >/dev/null 2>/dev/kmsg &
else
	echo "grange: this image has no SSH server; one built by grange image build cloud has"
fi
if [ -e $0 ]; then ($0; echo "grange: user data: ended with status $?") </dev/null & fi
tty=$(sed 's/.* //' /sys/class/tty/console/active)
while :; do setsid -c /bin/sh -c 'exec /bin/sh -l <>"$0" >&0 2>&1' "/dev/$tty"; sleep 1; done
`

// guestJob is what the guest of a cloud VM is told when it is up: its job, which lives until the VM is powered off.
// full says that the image is a full system, whose cloud-init has the name, the address, the keys and the user data
// from the seed: its job does nothing but live. It has the address, too, for images whose cloud-init is told to leave
// the network alone. The job's ID is the VM's. Errors: farm.CodeBadAddress.
func guestJob(w fleet.WantedVM, full bool) (*guest.Job, error) {
	j := &guest.Job{ID: w.ID, Dir: "/", Hostname: w.Hostname, Argv: []string{"/bin/sh", "-c", "exec sleep 2147483647"},
		User: guest.User{Name: "root", Home: "/root", Shell: "/bin/sh", Groups: []guest.Group{{Name: "root"}}},
		Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "USER=root",
			"LOGNAME=root"}}
	n, err := networkOf(w)
	if err != nil {
		return nil, err
	}
	if n != nil {
		j.Address = &guest.Address{CIDR: w.Address, Gateway: w.Gateway, DNS: w.DNS,
			OnLink: []string{metadata.Address.String()}}
	}
	if full {
		return j, nil
	}
	hosts := "127.0.0.1 localhost\n::1 localhost\n"
	if n != nil {
		short, _, _ := strings.Cut(w.Hostname, ".")
		hosts += fmt.Sprintf("%s %s %s\n", n.Address.Addr(), w.Hostname, short)
	}
	if j.Scratch, j.Disks = machine.GuestDisks(disksOf(w)); j.Scratch != "" {
		j.Env = append(j.Env, "GRANGE_SCRATCH=/tmp")
	}
	j.Files = []guest.File{
		{Path: "/etc/hostname", Content: []byte(w.Hostname + "\n")},
		{Path: "/etc/hosts", Content: []byte(hosts)},
		{Path: authorizedKeysPath, Content: []byte(strings.Join(w.Keys, "\n") + "\n"), Own: true},
	}
	script := cloudScript
	switch kind, known := strings.CutPrefix(firstWords(w.UserData), "#!"); {
	case known:
		j.Files = append(j.Files, guest.File{Path: userDataPath, Content: w.UserData, Own: true})
	case len(w.UserData) > 0:
		script = fmt.Sprintf("echo 'grange: user data: this image has no cloud-init, and takes a script that begins "+
			"with #! only: nothing of %q is carried out'\n", kind) + script
	}
	j.Argv = []string{"/bin/sh", "-c", "exec </dev/null >/dev/console 2>&1\n" + script, userDataPath}
	return j, nil
}

// disksOf is the VM's shape as far as its disks go.
func disksOf(w fleet.WantedVM) farm.Shape {
	return wire.WithDisks(farm.Shape{Memory: farm.Bytes(w.Shape.Memory), Scratch: farm.Bytes(w.Shape.Scratch)},
		w.Shape.Disks)
}

// firstWords is how user data begins, as far as it is plain text without quotes: it is shown, and says what it is.
func firstWords(data []byte) string {
	line, _, _ := bytes.Cut(data[:min(len(data), 40)], []byte("\n"))
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' || strings.ContainsRune(`'"\`, r) {
			return -1
		}
		return r
	}, string(line))
}

// networkOf is the VM's place in its network; nil where it has none. Errors: farm.CodeBadAddress.
func networkOf(w fleet.WantedVM) (*seed.Network, error) {
	if hostNetwork(w) == "" || w.Address == "" {
		return nil, nil
	}
	bad := func(what, text string) error {
		return &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadAddress,
			Message: fmt.Sprintf("invalid IPv4 address %q: the %s of VM %s", text, what, w.Name),
			Hint:    "see its network on the server"}
	}
	n := &seed.Network{MAC: w.MAC}
	var err error
	if n.Address, err = netip.ParsePrefix(w.Address); err != nil || !n.Address.Addr().Is4() {
		return nil, bad("address", w.Address)
	}
	if w.Gateway != "" {
		if n.Gateway, err = netip.ParseAddr(w.Gateway); err != nil || !n.Gateway.Is4() {
			return nil, bad("gateway", w.Gateway)
		}
	}
	for _, text := range w.DNS {
		server, err := netip.ParseAddr(text)
		if err != nil {
			return nil, bad("name server", text)
		}
		n.DNS = append(n.DNS, server)
	}
	_, n.Domain, _ = strings.Cut(w.Hostname, ".")
	return n, nil
}

// seedOf is a full image's first-boot data. cloud-init does anew what it does once, the user's script included,
// whenever the disks are fresh: after a rebuild, and not after a resize. Errors: farm.CodeBadAddress.
func seedOf(w fleet.WantedVM, guestFile string) (seed.Seed, error) {
	n, err := networkOf(w)
	if err != nil {
		return seed.Seed{}, err
	}
	s := seed.Seed{ID: fmt.Sprintf("%s-%d", w.ID, w.Fresh), Hostname: w.Hostname, Guest: guestFile, Keys: w.Keys,
		UserData: w.UserData, Network: n}
	for _, d := range disksOf(w).ScratchDisks() {
		if s.Disks = append(s.Disks, seed.Disk{Serial: d.Name, Path: d.Path}); d.On == farm.InMemory {
			s.Disks[len(s.Disks)-1] = seed.Disk{Path: d.Path, Size: d.Size}
		}
	}
	return s, nil
}
