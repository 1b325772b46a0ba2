package pages

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/policy"
	"github.com/grange-project/grange/internal/server"
)

// vmsAtOnce is how many VMs one page shows.
const vmsAtOnce = 100

// vmList is the page of VMs.
type vmList struct {
	Of       string // whose: "mine" or "all"
	Project  string
	State    string
	Name     string
	Projects []string
	States   []farm.VMState
	Rows     vmRows
	Next     string // URL of the next page; "": this is the last
	First    string // URL of the first page, on others
}

// vmRows is the part of the page that is kept up to date.
type vmRows struct {
	Poll   string // URL by which it is asked for anew
	Seen   string // stands for what it shows
	Now    time.Time
	Items  []vmRow
	Narrow bool // a filter chooses them
	Mine   bool
	Back   string
}

// vmRow is one VM of a list.
type vmRow struct {
	vmState
	Name, Project, Path   string
	Owner, Image, Size    string
	Host, Address, Domain string
	Created, Expires      time.Time
	Age                   string
	Left                  string // until it expires; "": it does not
	Soon                  bool   // within a day
}

// vmState is how a VM is, and what may be asked of it.
type vmState struct {
	State                   farm.VMState
	Tone                    string // class of the mark beside it
	Notice, Reason          string
	Start, Stop, Restart    bool
	Resize, Rebuild, Delete bool
	Console, Display        bool
}

// tones are the classes of states.
var tones = map[farm.VMState]string{farm.VMPlacing: "busy", farm.VMStarting: "busy", farm.VMRunning: "good",
	farm.VMStopping: "busy", farm.VMStopped: "off", farm.VMDeleting: "busy", farm.VMGone: "off", farm.VMFailed: "bad",
	farm.VMUnknown: "dim", farm.VMLost: "bad"}

// states are those that people filter by.
var states = []farm.VMState{farm.VMPlacing, farm.VMStarting, farm.VMRunning, farm.VMStopping, farm.VMStopped,
	farm.VMDeleting, farm.VMFailed, farm.VMUnknown, farm.VMLost}

func stateOf(v server.VMView) vmState {
	reason, _, _ := strings.Cut(v.Observed.Reason, "\n")
	return vmState{State: v.State, Tone: tones[v.State], Notice: v.Notice, Reason: reason,
		Start: v.Can(policy.StartVM), Stop: v.Can(policy.StopVM), Restart: v.Can(policy.RestartVM),
		Resize: v.Can(policy.ResizeVM), Rebuild: v.Can(policy.RebuildVM), Delete: v.Can(policy.DeleteVM),
		Console: v.Can(policy.ConsoleVM), Display: v.Shape.Display && v.Can(policy.ConsoleVM)}
}

func vmPath(project, name string) string {
	return "/vms/" + url.PathEscape(project) + "/" + url.PathEscape(name)
}

func sizeOf(s farm.Shape) string { return fmt.Sprintf("%d × %s", s.CPUs, s.Memory) }

// mine is what VMs of the caller are owned by.
func (v *visit) mine() string {
	if v.who.Root {
		return "root"
	}
	return v.who.User
}

// vmFilter reads which VMs are asked for: the query is in the words of the page.
func (v *visit) vmFilter() (f server.VMFilter, of string) {
	q := v.r.URL.Query()
	f = server.VMFilter{Project: q.Get("project"), State: farm.VMState(q.Get("state")), After: q.Get("after"),
		Host: q.Get("host"), Limit: vmsAtOnce}
	if name := strings.TrimSpace(q.Get("name")); name != "" {
		f.Name = name
		if !strings.ContainsAny(name, "*?[") {
			f.Name = "*" + name + "*"
		}
	}
	of = cmp.Or(q.Get("of"), "mine")
	if v.who.Root && q.Get("of") == "" {
		of = "all"
	}
	if of == "mine" {
		f.Owner = v.mine()
	}
	return f, of
}

func (v *visit) vms() error {
	f, of := v.vmFilter()
	rows, next, err := v.rowsOf(f, of)
	if err != nil {
		return err
	}
	projects, err := v.Server.Projects(v.ctx(), v.who)
	if err != nil {
		return err
	}
	q := v.r.URL.Query()
	l := vmList{Of: of, Project: f.Project, State: string(f.State), Name: q.Get("name"), States: states, Rows: rows}
	for _, p := range projects {
		l.Projects = append(l.Projects, p.Name)
	}
	if next != "" {
		l.Next = listBehind(v.r.URL, next)
	}
	if f.After != "" {
		l.First = listBehind(v.r.URL, "")
	}
	return v.show("vms", "VMs", "vms", l)
}

// listBehind is the address of the same list behind one of its entries; "": from the first one.
func listBehind(u *url.URL, entry string) string {
	q := u.Query()
	q.Set("after", entry)
	if entry == "" {
		q.Del("after")
	}
	return (&url.URL{Path: u.Path, RawQuery: q.Encode()}).RequestURI()
}

func (v *visit) rowsOf(f server.VMFilter, of string) (rows vmRows, next string, err error) {
	list, err := v.Server.VMs.List(v.ctx(), v.who, f)
	if err != nil {
		return rows, "", err
	}
	now := v.Now()
	rows = vmRows{Now: now, Narrow: f.Project+f.Name+string(f.State) != "", Mine: of == "mine"}
	for _, vm := range list.Items {
		rows.Items = append(rows.Items, rowOf(vm, now))
	}
	q := v.r.URL.Query()
	q.Del("seen")
	rows.Seen = sumOf(rows.Items)
	rows.Back = (&url.URL{Path: "/vms", RawQuery: q.Encode()}).RequestURI()
	q.Set("seen", rows.Seen)
	rows.Poll = "/vms/rows?" + q.Encode()
	return rows, list.Next, nil
}

func rowOf(v server.VMView, now time.Time) vmRow {
	row := vmRow{vmState: stateOf(v), Name: v.Name, Project: v.Project, Path: vmPath(v.Project, v.Name), Owner: v.Owner,
		Image: v.Image, Size: sizeOf(v.Shape), Host: v.HostName, Domain: v.Lease.Hostname, Created: v.Created,
		Expires: v.Expires, Age: span(now.Sub(v.Created))}
	if v.Lease.Address.IsValid() {
		row.Address = v.Lease.Address.Addr().String()
	}
	if !v.Expires.IsZero() {
		left := v.Expires.Sub(now)
		row.Left, row.Soon = span(left), left < 24*time.Hour
	}
	return row
}

// sumOf stands for what a part of a page shows: it is sent anew when that is something else.
func sumOf(shown any) string {
	text, err := json.Marshal(shown)
	if err != nil {
		panic(err) // it is of our own types, which can all be written
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// vmRows answers with the rows, or with nothing where they are what the page shows already.
func (v *visit) vmRows() error {
	f, of := v.vmFilter()
	rows, _, err := v.rowsOf(f, of)
	if err != nil {
		return err
	}
	if rows.Seen == v.r.URL.Query().Get("seen") {
		v.w.WriteHeader(http.StatusNoContent)
		return nil
	}
	return v.part("vms", "rows", rows)
}
