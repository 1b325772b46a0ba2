package networks

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/netbench"
	"github.com/grange-project/grange/internal/netbench/answerer"
	"github.com/grange-project/grange/internal/program"
)

// A check between two cloud VMs logs into both by `grange ssh`, with what the caller may do there, and takes this
// program along: nothing has to be installed in them.

// carried begins what is run in a VM: it takes this program from its input, and removes it at its end, whatever that
// is. $f is the program.
const carried = `f=$(mktemp) || exit 1; trap 'rm -f "$f" "$f.out"' EXIT; cat >"$f" && chmod 700 "$f" || exit 1; `

// answerHere leaves the side that answers behind, which ends with the check, and prints its port and key. A program
// that runs needs its file no longer.
const answerHere = carried + `nohup "$f" network answer --json --time 2m %s >"$f.out" 2>&1 </dev/null & ` +
	`n=0; while [ $n -lt 100 ] && ! grep -q '}' "$f.out"; do n=$((n+1)); sleep 0.1; done; cat "$f.out"`

// checking measures. A bad network is no error of the program there.
const checking = carried + `"$f" network check %s --key %s --time %v --packets %d --json </dev/null; s=$?; ` +
	`[ $s -eq %d ] && exit 0; exit $s`

// side is a VM of a check.
type side struct {
	ref string // as `grange ssh` takes it: [USER@]VM
	vm  fleet.VM
}

// remote is how VMs are reached; tests have another one.
type remote struct {
	grange func(ctx context.Context, input []byte, args ...string) ([]byte, error) // this program, anew
	self   func() ([]byte, error)                                                  // its file
}

// most is for bringing the program into a VM, and for all that is done there.
const most = 10 * time.Minute

func ourselves(server string) (remote, error) {
	own, err := app.OwnPath()
	if err != nil {
		return remote{}, err
	}
	env := os.Environ()
	if server != "" {
		env = append(env, "GRANGE_SERVER="+server)
	}
	return remote{
		grange: func(ctx context.Context, input []byte, args ...string) ([]byte, error) {
			return program.Start(ctx, program.Call{Path: own, Args: args, Env: env, Input: input, Limit: most})
		},
		self: func() ([]byte, error) { return os.ReadFile(own) }}, nil
}

// pair reads --between.
func pair(text string) (a, b string, err error) {
	a, b, ok := strings.Cut(text, ",")
	odd := func(ref string) bool {
		return ref == "" || strings.HasPrefix(ref, "-") || strings.ContainsAny(ref, ", \t\n")
	}
	if !ok || odd(a) || odd(b) || a == b {
		return "", "", app.Usage("--between web-1,web-2: two cloud VMs", "%q is not VM,VM", text)
	}
	return a, b, nil
}

// find looks a VM up.
func (r remote) find(ctx context.Context, ref string) (s side, err error) {
	name := ref
	if _, vm, ok := strings.Cut(ref, "@"); ok {
		name = vm
	}
	text, err := r.grange(ctx, nil, "vm", "show", name, "--json")
	if err != nil {
		return s, err
	}
	s.ref = ref
	if err := json.Unmarshal(text, &s.vm); err != nil || s.vm.Project == "" {
		return s, notBetween(name, "is no cloud VM: nobody can log in there from here",
			"in a job's VM, let the job run `grange network check`, or `grange-guest network-answer`")
	}
	if s.vm.Address == "" {
		return s, notBetween(name, "has no leased address, so that the other one cannot be told where it is",
			"run `grange network answer` in it")
	}
	return s, nil
}

func notBetween(vm, why, hint string) error {
	return &farm.Error{Kind: farm.Invalid, Code: netbench.CodeCheck, Message: fmt.Sprintf("VM %s %s", vm, why),
		Hint: hint}
}

// between measures from b to a.
func (r remote) between(ctx context.Context, f checkFlags, a, b side) (one check, err error) {
	self, err := r.self()
	if err != nil {
		return one, err
	}
	address, err := netip.ParsePrefix(a.vm.Address)
	if err != nil {
		return one, err
	}
	text, err := r.grange(ctx, self, "ssh", a.ref, "--", fmt.Sprintf(answerHere, netip.AddrPortFrom(address.Addr(), 0)))
	if err != nil {
		return one, err
	}
	var at struct{ Address, Key string }
	err = json.Unmarshal(bytes.TrimSpace(text), &at)
	heard, portErr := netip.ParseAddrPort(at.Address)
	if err != nil || portErr != nil || !isKey(at.Key) {
		return one, fmt.Errorf("the side that answers in %s does not start: %s", a.vm.Name,
			strings.TrimSpace(strings.ToValidUTF8(string(text), "?")))
	}
	text, err = r.grange(ctx, self, "ssh", b.ref, "--",
		fmt.Sprintf(checking, netip.AddrPortFrom(address.Addr(), heard.Port()), at.Key, f.time, f.packets, app.ExitBad))
	if err != nil {
		return one, err
	}
	var all []check
	if err := json.Unmarshal(text, &all); err != nil || len(all) != 1 {
		return one, fmt.Errorf("the check in %s prints what cannot be read: %w", b.vm.Name, err)
	}
	one = checkOf(a.vm.Name, f.name, all[0].Result, time.Now()) // its verdict is ours, not what a VM says
	if f.name == "" {
		one.Name = a.vm.Network
	}
	one.Between = &pairOf{From: endOf(b.vm), To: endOf(a.vm)}
	return one, nil
}

// isKey reports whether this is a key and nothing that a shell reads: a VM said it.
func isKey(text string) bool {
	return len(text) == answerer.KeySize && strings.Trim(text, "0123456789abcdef") == ""
}

// pairOf is between which VMs was measured, and where they were.
type pairOf struct {
	From end `json:"from"`
	To   end `json:"to"`
}

type end struct {
	VM      string `json:"vm"`
	Host    string `json:"host"`
	Network string `json:"network"`
}

func endOf(v fleet.VM) end { return end{v.Name, v.Host, v.Network} }

// checkBetween is `check --between`.
func (a networkCommands) checkBetween(ctx context.Context, c config.Agent, f checkFlags) error {
	to, from, err := pair(f.between)
	if err != nil {
		return err
	}
	r, err := ourselves(a.Server)
	if err != nil {
		return err
	}
	var sides [2]side
	for i, ref := range []string{to, from} {
		if sides[i], err = r.find(ctx, ref); err != nil {
			return err
		}
	}
	fmt.Fprintf(a.Err, "from %s to %s\n", sides[1].vm.Name, sides[0].vm.Name)
	one, err := r.between(ctx, f, sides[0], sides[1])
	if err != nil {
		return err
	}
	return a.keepAndPrint(c, f, one)
}
