package fleet

// Self is what a VM may know of itself: GET http://169.254.169.254/grange/v1/vm in the VM.
type Self struct {
	ID       string            `json:"id"`
	Name     string            `json:"name"`
	Project  string            `json:"project"`
	Owner    string            `json:"owner"`
	Hostname string            `json:"hostname"`
	Cell     string            `json:"cell,omitempty"`
	Host     string            `json:"host"`
	Image    string            `json:"image"`
	Shape    string            `json:"shape,omitempty"` // by name; empty: one of the VM's own
	Address  string            `json:"address"`         // with the length of its network's prefix
	MAC      string            `json:"mac"`
	Keys     []string          `json:"keys,omitempty"`
	Tags     map[string]string `json:"tags,omitempty"`
}
