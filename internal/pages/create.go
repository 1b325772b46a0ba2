package pages

import (
	"crypto/rand"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/server"
)

// vmForm is what somebody writes into the form of a new VM.
type vmForm struct {
	Name, Project, Image, Shape  string
	CPUs, Memory, Scratch        string
	Network, Cell, Arch, Expires string
	Keys                         []string // chosen among those that the caller used before
	Paste                        string
	NewKey, Display              bool
	UserData                     string
	Once                         string
}

// createPage is the form, and what else its page shows.
type createPage struct {
	Form     vmForm
	Projects []server.ProjectView
	Shapes   []farm.Shape
	Images   []imageChoice
	Archs    []string // of images; fewer than two are no choice
	Networks []farm.FleetNetwork
	Cells    []string
	Keys     []keyChoice
	Outlook  outlook
	Failed   *trouble
}

// imageChoice is an image that a VM may be made of.
type imageChoice struct{ Name, About, Arch string }

// keyChoice is a key of an earlier VM.
type keyChoice struct {
	Key, Name string
	Chosen    bool
}

// archProperty is what images call the architecture of their system.
const archProperty = "hw_architecture"

func (v *visit) newVM() error {
	q := v.r.URL.Query()
	return v.form(http.StatusOK, vmForm{Project: q.Get("project"), Image: q.Get("image"), Shape: q.Get("shape"),
		Once: rand.Text()}, nil)
}

// readForm is the form as it was sent.
func (v *visit) readForm() (vmForm, error) {
	if err := v.parse(); err != nil {
		return vmForm{}, err
	}
	get := func(key string) string { return strings.TrimSpace(v.r.PostForm.Get(key)) }
	return vmForm{Name: get("name"), Project: get("project"), Image: get("image"), Shape: get("shape"),
		CPUs: get("cpus"), Memory: get("memory"), Scratch: get("scratch"), Network: get("network"), Cell: get("cell"),
		Arch: get("arch"), Expires: get("expires"), Keys: v.r.PostForm["key"], Paste: get("paste"),
		NewKey: get("newkey") != "", Display: get("display") != "",
		UserData: strings.ReplaceAll(v.r.PostForm.Get("userdata"), "\r\n", "\n"),
		Once:     get("once")}, nil
}

// order is what the form asks for.
func (f vmForm) order() (server.CreateVM, error) {
	cpus, err1 := number("CPUs", f.CPUs)
	memory, err2 := bytesOf(f.Memory)
	o := server.CreateVM{Project: f.Project, Name: f.Name, Count: 1, Image: f.Image, Shape: f.Shape, CPUs: cpus,
		Memory: memory, Cell: f.Cell, Network: f.Network, Keys: slices.Clone(f.Keys), NewKey: f.NewKey,
		Display: f.Display, UserData: []byte(f.UserData), Once: f.Once}
	if f.UserData == "" {
		o.UserData = nil
	}
	for line := range strings.Lines(f.Paste) {
		if line = strings.TrimSpace(line); line != "" && !slices.Contains(o.Keys, line) {
			o.Keys = append(o.Keys, line)
		}
	}
	var err3, err4 error
	if f.Scratch != "" {
		var scratch farm.Bytes
		scratch, err3 = bytesOf(f.Scratch)
		o.Scratch = &scratch
	}
	o.Expires, err4 = parseExpiry(f.Expires)
	return o, farm.JoinErrors([]error{err1, err2, err3, err4})
}

func (v *visit) createVM() error {
	f, err := v.readForm()
	if err != nil {
		return err
	}
	order, err := f.order()
	var made server.Created
	if err == nil {
		made, err = v.Server.VMs.Create(v.ctx(), v.who, order)
	}
	if e, ok := errors.AsType[*farm.Error](err); ok && e.Kind != farm.Internal {
		return v.form(troubleOf(e).Status, f, e)
	}
	if err != nil {
		return err
	}
	if len(made.VMs) == 0 { // made by an earlier click, and deleted since
		return v.to("/vms")
	}
	path := vmPath(made.VMs[0].Project, made.VMs[0].Name)
	if made.PrivateKey == "" {
		return v.to(path)
	}
	return v.show("key", "Its key", "vms", struct{ Path, Name, Key string }{path, made.VMs[0].Name, made.PrivateKey})
}

// checkVM shows the form again, with what would come of it: for browsers without JavaScript.
func (v *visit) checkVM() error {
	f, err := v.readForm()
	if err != nil {
		return err
	}
	return v.form(http.StatusOK, f, nil)
}

// outlookVM answers with what would come of the form as it is.
func (v *visit) outlookVM() error {
	f, err := v.readForm()
	if err != nil {
		return err
	}
	projects, err := v.mayCreate()
	if err != nil {
		return err
	}
	shapes, err := v.Server.Shapes(v.ctx(), v.who)
	if err != nil {
		return err
	}
	look, err := v.outlook(f, projects, shapes)
	if err != nil {
		return err
	}
	return v.part("create", "outlook", look)
}

func (v *visit) form(status int, f vmForm, failed error) (err error) {
	page := createPage{Form: f}
	if page.Projects, err = v.mayCreate(); err != nil {
		return err
	}
	if len(page.Projects) == 0 {
		return &farm.Error{Kind: farm.Denied, Code: farm.CodeNotYours,
			Message: "you are a member of no project that may have VMs",
			Hint:    "ask an administrator for a role: `grange user grant USER member project:NAME`"}
	}
	if page.Form.Project == "" {
		page.Form.Project = page.Projects[0].Name
	}
	if page.Shapes, err = v.Server.Shapes(v.ctx(), v.who); err != nil {
		return err
	}
	if page.Form.Shape == "" && page.Form.CPUs == "" && len(page.Shapes) > 0 && failed == nil {
		page.Form.Shape = page.Shapes[0].Name
	}
	if page.Networks, err = v.Server.Networks(v.ctx(), v.who); err != nil {
		return err
	}
	if err := page.setImages(v); err != nil {
		return err
	}
	if page.Keys, err = keysOf(v, f); err != nil {
		return err
	}
	for _, p := range page.Projects {
		page.Cells = append(page.Cells, p.Cells...)
	}
	slices.Sort(page.Cells)
	page.Cells = slices.Compact(page.Cells)
	if page.Outlook, err = v.outlook(page.Form, page.Projects, page.Shapes); err != nil {
		return err
	}
	if failed != nil {
		t := troubleOf(failed)
		page.Failed = &t
	}
	return v.write(status, "create", "New VM", "vms", page)
}

// setImages are those of the catalogue that start, of the architecture that was asked for.
func (c *createPage) setImages(v *visit) error {
	all, err := v.Server.Images.List(v.ctx(), v.who)
	for _, i := range all {
		if i.State == farm.ImageWithdrawn {
			continue
		}
		arch := i.Properties[archProperty]
		if arch != "" && !slices.Contains(c.Archs, arch) {
			c.Archs = append(c.Archs, arch)
		}
		if c.Form.Arch != "" && arch != c.Form.Arch {
			continue
		}
		about := strings.Join(slices.DeleteFunc([]string{i.OS, arch, string(i.State)}, func(s string) bool {
			return s == "" || s == string(farm.ImageActive)
		}), ", ")
		c.Images = append(c.Images, imageChoice{i.Name, about, arch})
	}
	slices.Sort(c.Archs)
	return err
}

func imageNames(v *visit) (names []string, err error) {
	all, err := v.Server.Images.List(v.ctx(), v.who)
	for _, i := range all {
		if i.State != farm.ImageWithdrawn {
			names = append(names, i.Name)
		}
	}
	return names, err
}

// keysAtMost is how many keys of earlier VMs are offered.
const keysAtMost = 8

// keys are those of the caller's VMs, the newest first.
func keysOf(v *visit, f vmForm) ([]keyChoice, error) {
	list, err := v.Server.VMs.List(v.ctx(), v.who, server.VMFilter{Owner: v.mine(), Limit: vmsAtOnce})
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(list.Items, func(a, b server.VMView) int { return b.Created.Compare(a.Created) })
	var keys []keyChoice
	for _, vm := range list.Items {
		for _, key := range vm.Keys {
			known := slices.ContainsFunc(keys, func(k keyChoice) bool { return k.Key == key })
			if known || len(keys) == keysAtMost || key == vm.Key { // that of one VM alone
				continue
			}
			keys = append(keys, keyChoice{key, keyName(key), slices.Contains(f.Keys, key)})
		}
	}
	return keys, nil
}

// keyName is by what people know a key: its comment, or its end.
func keyName(key string) string {
	words := strings.Fields(key)
	switch {
	case len(words) > 2:
		return strings.Join(words[2:], " ") + " (" + words[0] + ")"
	case len(words) == 2:
		return words[0] + " …" + words[1][max(0, len(words[1])-12):]
	}
	return key
}
