package pages

// showConsole is a terminal on the serial console of a VM.
func showConsole(v *visit) error { return showConnection(v, "console", "Console") }

// showDisplay is the screen of a VM.
func showDisplay(v *visit) error {
	v.w.Header().Set("Content-Security-Policy", displayPolicy)
	return showConnection(v, "display", "Display")
}

func showConnection(v *visit, name, what string) error {
	page, err := v.vmPage()
	if err != nil {
		return err
	}
	title := what + " of " + page.Name
	return v.show(name, title, "vms", struct {
		vmPage
		Title string
	}{page, title})
}
