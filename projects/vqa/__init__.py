"""Visual question answering: the package ``vqa``, its tools and configs."""
