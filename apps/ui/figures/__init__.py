"""Pictures (plotly): plain data in, figures out.  No Streamlit, no simulation."""
